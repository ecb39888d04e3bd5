// The bytes of a KV cache: pages in slabs of a back-end, under one hard budget. Layers may have formats that differ in
// their bits; each format has a slab. Where formats seal pages (see KvFormat), the open ones of all layers lie in one
// more. The name of a page says where it is (page_slab).
//
// A page holds `page_tokens` slots of one (layer, KV head) and has a reference count; a page with more than one
// reference is shared and must not be modified. The positions of a page's slots are implicit (first_position + slot)
// until an operation makes them explicit: then position and log-count bias of each slot live in an aux entry, kept on
// the host and mirrored in the aux slab for the kernels (flush_aux uploads what changed).
//
// Budget: bytes_in_use() counts pages and aux entries in use, and what take_beside() was told of, and never exceeds
// budget_bytes(). Exhaustion is a value, not an error. bytes_reserved() is what was asked of the back-end: the page
// slab in one piece at creation, the aux slab at the first explicit page; on a CPU, reserved memory that no page has
// used yet costs nothing.
//
// Ownership: the back-end and the pool outlive every page. Whoever keeps references over time is a PageHolder, so that
// check_integrity() can account for all of them. Thread-safety: a pool, its holders and its back-end belong to one
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace godwit {

// What an operation wants of a pool: bytes of pages and aux entries to take, and those it gives back before it takes
// aux entries.
struct KvNeed {
  size_t page_bytes = 0, aux = 0;
  size_t freed_page_bytes = 0, freed_aux = 0;
  size_t freed_bytes = 0;  // given back before anything is taken

  KvNeed& operator+=(const KvNeed& other) {
    page_bytes += other.page_bytes, aux += other.aux;
    freed_page_bytes += other.freed_page_bytes, freed_aux += other.freed_aux, freed_bytes += other.freed_bytes;
    return *this;
  }
};

// How often each page is referred to.
class PageCounts {
 public:
  void add(PageId page) {
    std::vector<uint32_t>& counts = counts_[page_slab(page)];
    if (page_index(page) >= counts.size()) counts.resize(page_index(page) + 1);
    ++counts[page_index(page)];
  }
  uint32_t of(PageId page) const {
    const std::vector<uint32_t>& counts = counts_[page_slab(page)];
    return page_index(page) < counts.size() ? counts[page_index(page)] : 0;
  }
  size_t pages(size_t slab) const { return counts_[slab].size(); }

 private:
  std::vector<uint32_t> counts_[kSlabs];
};

// Whoever holds references to pages: a sequence, a prefix index, a tier.
class PageHolder {
 public:
  // Adds every reference held.
  virtual void count_references(PageCounts& counts) const = 0;

 protected:
  ~PageHolder() = default;
};

class KvPool {
 public:
  // Fails when the budget holds no page or the back-end has no memory for it. `slab_memory` gives other memory than the
  // back-end's allocate() for the pages; not for open ones. Behind its pages each slab has `spare_pages` more, beside
  // the budget, for what others keep and walks read together with these.
  using SlabMemory = std::function<Result<Buffer>(size_t bytes)>;
  static Result<std::unique_ptr<KvPool>> create(Backend& backend, const KvFormat& format, size_t budget_bytes,
                                                const SlabMemory& slab_memory = {}, size_t spare_pages = 0);
  // With a format for each layer. REQUIRES: they differ in bits of K and V only, and there are at most kSlabs - 1.
  static Result<std::unique_ptr<KvPool>> create(Backend& backend, std::span<const KvFormat> layers, size_t budget_bytes,
                                                const SlabMemory& slab_memory = {}, size_t spare_pages = 0);
  ~KvPool();  // REQUIRES: no holder is left
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  Backend& backend() const { return backend_; }
  const KvFormat& format() const { return formats_[0]; }  // but for bits, that of every layer
  const KvFormat& format(int layer) const { return formats_[slab_of(layer)]; }
  bool equal_pages() const { return layer_slabs_.empty(); }  // in all layers
  std::byte* slab(int layer = 0) const { return slabs_[slab_of(layer)].memory.data(); }
  std::byte* open_slab() const { return slabs_[kOpen].memory.data(); }  // null if the format does not seal
  const std::byte* aux_slab() const { return aux_slab_.data(); }        // null until a page was explicit
  size_t budget_bytes() const { return budget_bytes_; }
  size_t capacity_pages() const { return slabs_[0].capacity; }
  size_t spare_pages() const { return spare_pages_; }
  PageId spare_page(size_t index, int layer, bool open) const {
    const size_t slab = open ? kOpen : slab_of(layer);
    return static_cast<PageId>(slab << kPageIndexBits | (slabs_[slab].capacity + index));
  }
  size_t pages_in_use() const { return pages_in_use_; }
  size_t aux_in_use() const { return aux_in_use_; }
  size_t bytes_in_use() const { return page_bytes_in_use_ + aux_in_use_ * format().aux_bytes() + beside_bytes_; }
  size_t bytes_reserved() const;
  size_t peak_bytes() const { return peak_bytes_; }  // highest bytes_in_use() so far

  // How many pages, of the smallest that there are, must become free before `need` can be met; 0: it can be met now. An
  // aux slab that the back-end cannot allocate counts as missing pages.
  size_t missing_pages(const KvNeed& need);
  size_t smallest_page_bytes() const { return smallest_page_bytes_; }
  size_t page_bytes(int layer, bool open) const { return slabs_[open ? kOpen : slab_of(layer)].page_bytes; }

  // A page with one reference, implicit positions from first_position on, and unspecified contents.
  [[nodiscard]] std::optional<PageId> allocate(int32_t first_position, bool open = false, int layer = 0);
  // A page with one reference and the contents, positions and biases of `page`.
  [[nodiscard]] std::optional<PageId> copy(PageId page);
  void ref(PageId page);
  void unref(PageId page);  // the last reference frees the page and its aux entry
  // A reference that its holder would give up if asked, one a page at most. REQUIRES of keep: it is not explicit.
  void keep(PageId page);
  void give_up(PageId page);
  // Memory that belongs to what pages hold and lies elsewhere counts, too; false: the budget has no room for it.
  [[nodiscard]] bool take_beside(size_t bytes);
  void give_beside(size_t bytes);
  size_t kept_bytes() const;                     // of pages that have no other reference
  uint64_t changes() const { return changes_; }  // another number whenever a page got or lost a reference
  // Of pages all of whose references are among these, but for one that keep() took.
  size_t bytes_held_by(const PageCounts& counts) const;
  size_t bytes_of(const PageCounts& counts) const;  // of all these pages, each once
  // Another number whenever slots of the page that were filled get other contents; appending does not change it.
  uint64_t stamp(PageId page) const { return at(page).stamp; }
  void touch(PageId page) { at(page).stamp = ++last_stamp_; }
  uint32_t references(PageId page) const { return at(page).references; }
  bool shared(PageId page) const { return references(page) > 1; }
  uint32_t firm_references(PageId page) const { return references(page) - (at(page).kept ? 1 : 0); }  // not keep()'s
  size_t bytes(PageId page) const {  // with its aux entry
    return slabs_[page_slab(page)].page_bytes + (is_explicit(page) ? format().aux_bytes() : 0);
  }

  // Slots. Slots past what a holder counts as filled may be asked for too; their values mean nothing.
  bool is_explicit(PageId page) const { return at(page).aux != kNoAux; }
  uint32_t aux(PageId page) const { return at(page).aux; }
  int32_t first_position(PageId page) const { return position(page, 0); }
  int32_t position(PageId page, uint32_t slot) const;
  float bias(PageId page, uint32_t slot) const;

  // REQUIRES of all three: the page is not shared. make_explicit keeps positions, with bias 0, and is false when the
  // budget has no room; on an explicit page it does nothing.
  [[nodiscard]] bool make_explicit(PageId page);
  void make_implicit(PageId page, int32_t first_position);
  void set_slot(PageId page, uint32_t slot, int32_t position, float bias);  // REQUIRES: is_explicit(page)
  void copy_slots(PageId from, PageId to);  // makes `to` explicit. REQUIRES: there is room; is_explicit(from)
  // Uploads aux entries that changed since the last call. Operations of holders end with it.
  void flush_aux();

  bool has_holders() const { return !holders_.empty(); }
  void add_holder(const PageHolder* holder);
  void remove_holder(const PageHolder* holder);

  // Free lists, counts, budget, and that the holders' references are all there are. O(capacity).
  Status check_integrity() const;

 private:
  struct Page {
    uint32_t references = 0;
    int32_t first_position = 0;  // while implicit
    uint32_t aux = kNoAux;
    bool kept = false;
    uint64_t stamp = 0;
  };
  struct Slab {
    size_t page_bytes = 0, capacity = 0, in_use = 0;
    size_t only_kept = 0;  // pages whose one reference is keep()'s
    Buffer memory;
    std::vector<Page> pages;   // as many as were ever in use; later ids are free and their memory untouched
    std::vector<PageId> free;  // last freed, first used
  };

  static constexpr size_t kOpen = kSlabs - 1;

  KvPool(Backend& backend, size_t budget_bytes, size_t spare_pages)
      : backend_(backend), budget_bytes_(budget_bytes), spare_pages_(spare_pages) {}
  Status allocate_slab(Slab& slab, const KvFormat& format, const SlabMemory& slab_memory);
  std::optional<PageId> allocate_in(size_t slab, int32_t first_position);
  size_t slab_of(int layer) const { return layer_slabs_.empty() ? 0 : layer_slabs_[static_cast<size_t>(layer)]; }
  const Page& at(PageId page) const { return slabs_[page_slab(page)].pages[page_index(page)]; }
  Page& at(PageId page) { return slabs_[page_slab(page)].pages[page_index(page)]; }
  bool ensure_aux_slab();
  uint32_t take_aux();
  size_t bytes_if(const PageCounts& counts, const std::function<bool(PageId)>& counts_too) const;
  void free_aux(Page& page);
  size_t aux_words() const { return format().aux_bytes() / sizeof(int32_t); }
  void note_peak();

  Backend& backend_;
  size_t budget_bytes_, spare_pages_;
  size_t capacity_aux_ = 0, smallest_page_bytes_ = SIZE_MAX;
  std::vector<KvFormat> formats_;     // by slab
  std::vector<uint8_t> layer_slabs_;  // empty: all layers have the first
  Slab slabs_[kSlabs];
  size_t pages_in_use_ = 0, page_bytes_in_use_ = 0, beside_bytes_ = 0;
  Buffer aux_slab_;
  std::vector<uint32_t> free_aux_;
  std::vector<int32_t> aux_host_;      // [entries ever in use, 2, page_tokens]: positions, then the bits of the biases
  std::vector<uint32_t> aux_changed_;  // entries to upload; may repeat
  uint64_t last_stamp_ = 0, changes_ = 1;
  size_t aux_in_use_ = 0, peak_bytes_ = 0;
  std::vector<const PageHolder*> holders_;
};

}  // namespace godwit
