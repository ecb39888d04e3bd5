// The bytes of a KV cache: pages of one format in one slab of a back-end, under a hard budget.
//
// A page holds `page_tokens` slots of one (layer, KV head) and has a reference count; a page with more than one
// reference is shared and must not be modified. The positions of a page's slots are implicit (first_position + slot)
// until an operation makes them explicit: then position and log-count bias of each slot live in an aux entry, kept on
// the host and mirrored in the aux slab for the kernels (flush_aux uploads what changed).
//
// Budget: bytes_in_use() counts pages and aux entries in use and never exceeds budget_bytes(). Exhaustion is a value,
// not an error. bytes_reserved() is what was asked of the back-end: the page slab in one piece at creation, the aux
// slab at the first explicit page; on a CPU, reserved memory that no page has used yet costs nothing.
//
// Where the format seals pages (see KvFormat), open ones are those of a second pool, open(), under the same budget:
// bytes and peak are of both together.
//
// Ownership: the back-end and the pool outlive every page. Whoever keeps references over time is a PageHolder, so that
// check_integrity() can account for all of them. Thread-safety: a pool, its holders and its back-end belong to one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace godwit {

// What an operation wants of a pool: pages and aux entries to take, and those it gives back before it takes aux
// entries.
struct KvNeed {
  size_t pages = 0, open_pages = 0, aux = 0;
  size_t freed_pages = 0, freed_aux = 0;

  KvNeed& operator+=(const KvNeed& other) {
    pages += other.pages, open_pages += other.open_pages, aux += other.aux, freed_pages += other.freed_pages,
        freed_aux += other.freed_aux;
    return *this;
  }
};

// Whoever holds references to pages: a sequence, a prefix index, a tier.
class PageHolder {
 public:
  // Adds one to references[page] for every reference held.
  virtual void count_references(std::span<uint32_t> references) const = 0;

 protected:
  ~PageHolder() = default;
};

class KvPool {
 public:
  // Fails when the budget holds no page or the back-end has no memory for it.
  static Result<std::unique_ptr<KvPool>> create(Backend& backend, const KvFormat& format, size_t budget_bytes);
  ~KvPool();  // REQUIRES: no holder is left
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  Backend& backend() const { return backend_; }
  const KvFormat& format() const { return format_; }
  std::byte* slab() const { return slab_.data(); }
  KvPool* open() const { return open_.get(); }                    // null if the format does not seal
  const std::byte* aux_slab() const { return aux_slab_.data(); }  // null until a page was explicit

  size_t budget_bytes() const { return budget_bytes_; }
  size_t capacity_pages() const { return capacity_pages_; }
  size_t pages_in_use() const { return pages_in_use_; }
  size_t aux_in_use() const { return aux_in_use_; }
  size_t bytes_in_use() const {
    return pages_in_use_ * format_.page_bytes() + aux_in_use_ * format_.aux_bytes() +
           (open_ ? open_->bytes_in_use() : 0);
  }
  size_t bytes_reserved() const { return slab_.bytes + aux_slab_.bytes + (open_ ? open_->bytes_reserved() : 0); }
  size_t peak_bytes() const { return peak_bytes_; }  // highest bytes_in_use() so far

  // How many pages must become free before `need` can be met; 0: it can be met now. An aux slab that the back-end
  // cannot allocate counts as missing pages.
  size_t missing_pages(const KvNeed& need);

  // A page with one reference, implicit positions from first_position on, and unspecified contents.
  [[nodiscard]] std::optional<PageId> allocate(int32_t first_position);
  // A page with one reference and the contents, positions and biases of `page`.
  [[nodiscard]] std::optional<PageId> copy(PageId page);
  void ref(PageId page);
  void unref(PageId page);  // the last reference frees the page and its aux entry
  uint32_t references(PageId page) const { return pages_[page].references; }
  bool shared(PageId page) const { return references(page) > 1; }

  // Slots. Slots past what a holder counts as filled may be asked for too; their values mean nothing.
  bool is_explicit(PageId page) const { return pages_[page].aux != kNoAux; }
  uint32_t aux(PageId page) const { return pages_[page].aux; }
  int32_t first_position(PageId page) const { return position(page, 0); }
  int32_t position(PageId page, uint32_t slot) const;
  float bias(PageId page, uint32_t slot) const;

  // REQUIRES of all three: the page is not shared. make_explicit keeps positions, with bias 0, and is false when the
  // budget has no room; on an explicit page it does nothing.
  [[nodiscard]] bool make_explicit(PageId page);
  void make_implicit(PageId page, int32_t first_position);
  void set_slot(PageId page, uint32_t slot, int32_t position, float bias);  // REQUIRES: is_explicit(page)
  // Uploads aux entries that changed since the last call. Operations of holders end with it.
  void flush_aux();

  void add_holder(const PageHolder* holder);
  void remove_holder(const PageHolder* holder);

  // Free lists, counts, budget, and that the holders' references are all there are. O(capacity).
  Status check_integrity() const;

 private:
  struct Page {
    uint32_t references = 0;
    int32_t first_position = 0;  // while implicit
    uint32_t aux = kNoAux;
  };

  KvPool(Backend& backend, const KvFormat& format, size_t budget_bytes);
  bool ensure_aux_slab();
  uint32_t take_aux();
  void free_aux(Page& page);
  size_t aux_words() const { return format_.aux_bytes() / sizeof(int32_t); }
  void note_peak();
  // Of this pool and those it shares the budget with.
  size_t all_bytes_in_use() const { return sealed_ != nullptr ? sealed_->bytes_in_use() : bytes_in_use(); }

  Backend& backend_;
  KvFormat format_;
  size_t budget_bytes_;
  size_t capacity_pages_, capacity_aux_;

  Buffer slab_, aux_slab_;
  std::vector<Page> pages_;         // as many as were ever in use; later ids are free and their memory untouched
  std::vector<PageId> free_pages_;  // last freed, first used
  std::vector<uint32_t> free_aux_;
  std::vector<int32_t> aux_host_;      // [entries ever in use, 2, page_tokens]: positions, then the bits of the biases
  std::vector<uint32_t> aux_changed_;  // entries to upload; may repeat
  size_t pages_in_use_ = 0, aux_in_use_ = 0, peak_bytes_ = 0;
  std::vector<const PageHolder*> holders_;
  std::unique_ptr<KvPool> open_;
  KvPool* sealed_ = nullptr;  // of an open pool, the one it belongs to
};

}  // namespace godwit
