// The KV cache of one sequence: for each (layer, KV head) a list of pages of a pool and the number of slots filled.
//
// A slot is the K and V of one token, with its position and log-count bias. The heads of a sequence may hold different
// numbers of slots. Invariants: pages are dense, so slot i of a head is slot i % page_tokens of page i / page_tokens of
// its list, and a head of n slots has exactly ceil(n / page_tokens) pages, which keeps ordinals (see attention.h) and
// bytes a function of n; positions ascend strictly within a head and are below next_position(). An append after a
// compaction fills the last page up, whose positions are then explicit; pages after it are implicit again.
//
// Sharing: fork() shares pages by reference count. A shared page is never modified: an operation that must write to one
// works on a copy. Every operation that takes memory is all or nothing; when the pool lacks pages, the outcome says how
// many and nothing has changed.
//
// A step of a model: append(n) once; then for each layer kv_write to tail_slots(layer, n) and attention over the
// layer's pages. Slots appended and not yet written hold unspecified numbers: truncate() them away if the step is
// abandoned.
//
// Where the format seals pages, a sequence only grows (no gaps, drops or biases), and its newest pages are those of
// the pool's open(). A step seals the pages that its last row reads sealed, after kv_write and before attention
// (list_seals); its first rows may still read some of them open, so that both forms stay until settle() ends the step.
//
// Ownership: the pool outlives its sequences. Thread-safety: one thread at a time per pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kv/pool.h"

namespace godwit {

struct KvShape {
  int layers = 0;
  int kv_heads = 0;
};

// Done, or short of memory.
struct [[nodiscard]] KvOutcome {
  size_t missing_pages = 0;  // to be freed before the operation can succeed
  explicit operator bool() const { return missing_pages == 0; }
};

class KvSequence final : private PageHolder {
 public:
  KvSequence(KvPool& pool, KvShape shape);
  ~KvSequence();
  KvSequence& operator=(const KvSequence&) = delete;

  KvPool& pool() const { return pool_; }
  const KvShape& shape() const { return shape_; }

  // The position of the next token; without gaps also the number of tokens appended and not truncated.
  int32_t next_position() const { return next_position_; }
  size_t slots(int layer, int head) const { return at(layer, head).count; }
  size_t pages(int layer, int head) const { return at(layer, head).pages.size(); }
  int32_t position(int layer, int head, size_t slot) const;
  float bias(int layer, int head, size_t slot) const;
  // The number of slots whose position is below `end_position`, which are the first ones. O(log n).
  size_t slots_before(int layer, int head, int32_t end_position) const {
    return slots_before(at(layer, head), end_position);
  }
  // Adds pages [begin, end) of a head to `refs`, as attention wants them: for rows at `row_position` and after it, up
  // to the next multiple of page_tokens (which matters while pages are there in both forms).
  void list_pages(int layer, int head, size_t begin, size_t end, std::vector<PageRef>& refs,
                  int32_t row_position = INT32_MAX) const;

  // Bytes of all pages and aux entries, and of those that no one else shares: what destruction would free.
  size_t bytes() const;
  size_t exclusive_bytes() const;

  // Room in every head of every layer for `tokens` tokens at consecutive positions from next_position(), or from a
  // later first_position.
  KvOutcome append(int tokens) { return append(tokens, next_position_); }
  KvOutcome append(int tokens, int32_t first_position);
  // What append() would take; a scheduler may add up several.
  KvNeed append_need(int tokens) const { return append_need(tokens, next_position_); }
  KvNeed append_need(int tokens, int32_t first_position) const;
  // Adds the places of the last `tokens` slots of a layer to `slots`: [tokens, kv_heads]. REQUIRES: appended just now.
  void tail_slots(int layer, int tokens, std::vector<KvSlot>& slots) const;

  // Where pages are there in both forms: which a step has to seal in a layer, and the end of the step.
  bool sealing() const { return !heads_[0].twins.empty(); }
  void list_seals(int layer, std::vector<KvSeal>& seals) const;
  void settle();
  // A sequence with sealed pages can be truncated to this many tokens and be as if it had never been longer, not to
  // less (but to 0).
  int32_t shortest_exact() const;

  // The same contents, sharing every page.
  std::unique_ptr<KvSequence> fork() const;

  // Forgets every slot at `end_position` or later, in all heads; tokens are appended from there on. Takes no memory.
  void truncate(int32_t end_position);

  // Drops slots of one head (ascending indices), or keeps only those given, and closes the gaps in order. Pages that
  // are no longer needed are freed; pages whose slots stay where they are stay shared.
  KvOutcome drop(int layer, int head, std::span<const uint32_t> dropped);
  KvOutcome retain(int layer, int head, std::span<const uint32_t> kept);

  // biases[i] becomes the log-count bias of slot slots[i] (ascending indices): the logarithm of how many tokens it
  // stands for, added to its score.
  KvOutcome set_biases(int layer, int head, std::span<const uint32_t> slots, std::span<const float> biases);

  // The invariants above, in every head. O(slots).
  Status check_integrity() const;

 private:
  struct Head {
    std::vector<PageId> pages;  // those of the open pool marked kOpen
    uint32_t count = 0;
    // Open forms of pages [first_twin, first_twin + twins.size()), which are sealed.
    uint32_t first_twin = 0;
    std::vector<PageId> twins;
  };
  static constexpr PageId kOpen = PageId{1} << 31;
  // Accounts for the pages of the open pool.
  struct OpenHolder final : PageHolder {
    explicit OpenHolder(const KvSequence& owner) : sequence(owner) {}
    void count_references(std::span<uint32_t> references) const override { sequence.count(references, true); }
    const KvSequence& sequence;
  };
  struct Compaction;  // sequence_retain.cpp

  KvSequence(const KvSequence& other);
  void count_references(std::span<uint32_t> references) const override { count(references, false); }
  void count(std::span<uint32_t> references, bool open) const;
  void add_holders();

  // Of a page in a head's list: its pool, its name there, and its form.
  static bool is_open(PageId page) { return (page & kOpen) != 0; }
  static PageId bare(PageId page) { return page & ~kOpen; }
  KvPool& home(PageId page) const { return is_open(page) ? *pool_.open() : pool_; }
  void ref(PageId page) const { home(page).ref(bare(page)); }
  void unref(PageId page) const { home(page).unref(bare(page)); }
  bool shared(PageId page) const { return home(page).shared(bare(page)); }
  size_t bytes(PageId page) const {
    const KvPool& pool = home(page);
    return pool.format().page_bytes() + (pool.is_explicit(bare(page)) ? pool.format().aux_bytes() : 0);
  }
  PageId open_form(const Head& head, size_t ordinal) const;
  size_t sealed_end(int64_t tokens) const;
  void seal(Head& head, size_t begin, size_t end);

  const Head& at(int layer, int head) const;
  Head& at(int layer, int head) { return const_cast<Head&>(std::as_const(*this).at(layer, head)); }
  uint32_t page_tokens() const { return static_cast<uint32_t>(pool_.format().page_tokens); }
  size_t pages_for(size_t count) const { return (count + page_tokens() - 1) / page_tokens(); }
  int32_t position(const Head& head, size_t slot) const;
  size_t slots_before(const Head& head, int32_t end_position) const;
  void extend(Head& head, int tokens, int32_t first_position);
  void replace_by_copy(PageId& page);
  void set_free_slots(PageId page, uint32_t filled, int32_t first_position);
  Compaction plan_compaction(const Head& head, std::span<const uint32_t> kept) const;

  KvPool& pool_;
  KvShape shape_;
  std::vector<Head> heads_;  // [layers, kv_heads]
  OpenHolder open_holder_{*this};
  int32_t next_position_ = 0;
};

}  // namespace godwit
