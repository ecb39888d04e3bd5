// The KV cache of one sequence: for each (layer, KV head) a list of pages of a pool and the number of slots filled.
//
// A slot is the K and V of one token, with its position and log-count bias. The heads of a sequence may hold different
// numbers of slots. Invariants: pages are dense, so slot i of a head is slot i % page_tokens of page i / page_tokens of
// its list, and a head of n slots has exactly ceil(n / page_tokens) pages, which keeps ordinals (see attention.h) and
// bytes a function of n; positions ascend strictly within a head (but see demote()) and are below next_position(). An
// append after a compaction fills the last page up, whose positions are then explicit; pages after it are implicit
// again.
//
// Sharing: fork() shares pages by reference count. A shared page is never modified: an operation that must write to one
// works on a copy. Every operation that takes memory is all or nothing; when the pool lacks pages, the outcome says how
// many and nothing has changed.
//
// A step of a model: append(n) once; then for each layer kv_write to tail_slots(layer, n) and attention over the
// layer's pages. Slots appended and not yet written hold unspecified numbers: truncate() them away if the step is
// abandoned.
//
// Where the format seals pages, a head of n slots has pages [sealed_begin, sealed_end(n)) of KvFormat sealed, and all
// others open. A step seals the pages that its last row reads sealed, after kv_write and before attention (list_seals);
// its first rows may still read some of them open, so that both forms stay until settle() ends the step. Slots of
// sealed pages that get another place, or other contents, are decoded and sealed again with their new neighbours.
//
// Of a sequence that several processes keep together each has a *share* (share.h), with the positions of the whole.
// What is sealed of it follows from the number of tokens of the whole sequence, and next_position() is that of all of
// them.
//
// Where the format demotes, a head begins with the pages that demote() sealed, in the order in which it did. Positions
// ascend strictly within each of them and over all open pages, which come after.
//
// Ownership: the pool outlives its sequences. Thread-safety: one thread at a time per pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kv/pool.h"
#include "kv/share.h"

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
  KvSequence(KvPool& pool, KvShape shape, KvShare share = {});
  ~KvSequence();
  KvSequence& operator=(const KvSequence&) = delete;

  KvPool& pool() const { return pool_; }
  const KvShape& shape() const { return shape_; }
  const KvShare& share() const { return share_; }

  // The position of the next token; without gaps also the number of tokens appended and not truncated.
  int32_t next_position() const { return next_position_; }
  size_t slots(int layer, int head) const { return at(layer, head).count; }
  size_t pages(int layer, int head) const { return at(layer, head).pages.size(); }
  int32_t position(int layer, int head, size_t slot) const;
  float bias(int layer, int head, size_t slot) const;
  // The number of slots whose position is below `end_position`, which are the first ones. O(log n). A head that has
  // demoted slots answers 0 for positions from before that: which slots are those has nothing to do with their order.
  size_t slots_before(int layer, int head, int32_t end_position) const {
    return slots_before(at(layer, head), end_position);
  }
  // Adds pages [begin, end) of a head to `refs`, as attention wants them for rows from slot `row` of the head on up to
  // the next multiple of page_tokens; which rows only matters while sealing().
  void list_pages(int layer, int head, size_t begin, size_t end, std::vector<PageRef>& refs,
                  size_t row = SIZE_MAX) const;

  // Bytes of all pages and aux entries, and of those that no one else shares: what destruction would free.
  size_t bytes() const;
  size_t exclusive_bytes() const;
  bool holds_alone() const;  // a page that nobody else has, but for one who would give it up
  void count_references(PageCounts& counts) const override;

  // Room in every head of every layer for those of the next `tokens` tokens that the share keeps, at consecutive
  // positions from next_position() or from a later first_position on.
  KvOutcome append(int tokens) { return append(tokens, next_position_); }
  KvOutcome append(int tokens, int32_t first_position);
  // What append() would take; a scheduler may add up several.
  KvNeed append_need(int tokens) const { return append_need(tokens, next_position_); }
  KvNeed append_need(int tokens, int32_t first_position) const;
  // Adds the places of the last `tokens` slots of a layer to `slots`: [tokens, kv_heads]. REQUIRES: appended just now.
  void tail_slots(int layer, int tokens, std::vector<KvSlot>& slots) const;

  // Whether there is room for tokens that no step has computed yet, or has been cut off; every rank says the same.
  bool amid_step() const { return next_position_ != settled_; }
  // Whether pages are there in both forms; which of them a step has to seal in a layer; and the end of the step.
  bool sealing() const;
  void list_seals(int layer, std::vector<KvSeal>& seals) const;
  // While sealing(), the open form of a page; else the page.
  PageId earlier_form(int layer, int head, size_t ordinal) const;
  void settle();

  // One more full page in every head, shared with whoever has it: pages[layer * kv_heads + head]. They hold the next
  // page_tokens tokens. REQUIRES: every head holds whole pages; in the end, pages are open and sealed as they must be.
  void append_shared(std::span<const PageId> pages);
  // Page number `ordinal` of every head, in that order; false if it is not there in that form. REQUIRES: each has it,
  // full, and no head has dropped slots.
  bool list_column(size_t ordinal, bool open, std::vector<PageId>& pages) const;

  // The same contents, sharing every page.
  std::unique_ptr<KvSequence> fork() const;
  // The same tokens with another share: pages that both have are shared, and the others hold unspecified numbers; null
  // when the pool lacks them. REQUIRES: no step is under way, and nothing was dropped.
  std::unique_ptr<KvSequence> reshare(KvShare share) const;
  // Both get what the other had. REQUIRES: they are of one pool and shape, and neither is amid a step.
  void swap(KvSequence& other);

  // Forgets every slot at `end_position` or later, in all heads; tokens are appended from there on. Takes no memory.
  // Before settle(), this undoes what the step sealed. REQUIRES: end_position is 0 or at least shortest_exact().
  void truncate(int32_t end_position);
  // Sealed pages cannot be opened again: truncated to less, but not to nothing, a sequence would not be as if it had
  // never been longer. 0 where the format does not seal.
  int32_t shortest_exact() const;

  // Drops slots of one head (ascending indices), or keeps only those given, and closes the gaps in order. Pages that
  // are no longer needed are freed; pages whose slots stay where they are stay shared.
  KvOutcome drop(int layer, int head, std::span<const uint32_t> dropped);
  KvOutcome retain(int layer, int head, std::span<const uint32_t> kept);
  // Seals the open slots of one head except those given (ascending indices), which stay open behind them: the new order
  // is demotion_order(). What is sealed already does not change, so every number is rounded once. REQUIRES: the format
  // demotes; the slots to seal are whole pages.
  KvOutcome demote(int layer, int head, std::span<const uint32_t> kept);
  size_t demoted(int layer, int head) const { return at(layer, head).demoted * page_tokens(); }  // the first slots

  // All of `slots` slots that are not in `kept`, then those.
  static std::vector<uint32_t> demotion_order(size_t slots, std::span<const uint32_t> kept);

  // biases[i] becomes the log-count bias of slot slots[i] (ascending indices): the logarithm of how many tokens it
  // stands for, added to its score.
  KvOutcome set_biases(int layer, int head, std::span<const uint32_t> slots, std::span<const float> biases);
  // Other K and V for slots, [slots, head_dim] each. REQUIRES: their pages are not shared. An error is kExhausted: the
  // back-end has no memory for the numbers.
  Status rewrite(int layer, int head, std::span<const uint32_t> slots, std::span<const float> keys,
                 std::span<const float> values);

  // The invariants above, in every head. O(slots).
  Status check_integrity() const;

 private:
  struct Head {
    int layer = 0;
    std::vector<PageId> pages;
    uint32_t count = 0;
    // Open forms of pages [first_twin, first_twin + twins.size()), which are sealed.
    uint32_t first_twin = 0;
    std::vector<PageId> twins;
    uint32_t demoted = 0;  // pages at the beginning that demote() sealed
  };
  struct Compaction;  // sequence_retain.cpp

  KvSequence(const KvSequence& other);

  const Head& at(int layer, int head) const;
  Head& at(int layer, int head) { return const_cast<Head&>(std::as_const(*this).at(layer, head)); }
  uint32_t page_tokens() const { return static_cast<uint32_t>(pool_.format().page_tokens); }
  size_t pages_for(size_t count) const { return (count + page_tokens() - 1) / page_tokens(); }
  int32_t position(const Head& head, size_t slot) const;
  size_t slots_before(const Head& head, int32_t end_position) const;
  void extend(Head& head, std::span<const KvShare::Run> runs, int32_t next_position);
  // Pages [sealed_begin(), sealed_end(…)) of a head are sealed when it has so many slots and the next position is that.
  size_t sealed_begin() const { return share_.pages_of(pool_.format().sealed_begin()); }
  size_t sealed_end(size_t slots, int32_t next_position) const;
  void seal(Head& head, size_t begin, size_t end);
  PageId open_form(const Head& head, size_t ordinal) const;
  void replace_by_copy(PageId& page);
  void set_free_slots(PageId page, uint32_t filled, int32_t first_position);
  Compaction plan_compaction(const Head& head, std::span<const uint32_t> kept) const;
  void place(const Head& made, const Compaction& plan);
  // sequence_reseal.cpp
  KvOutcome retain_sealed(Head& head, std::span<const uint32_t> order, uint32_t demoted);
  // Which of the tables of the format's sealed_form a head's pages are sealed with.
  uint32_t table_of(const Head& head) const { return static_cast<uint32_t>(&head - heads_.data()); }
  KvSeal seal_of(const Head& head, PageId open, PageId sealed) const {
    return {open, sealed, table_of(head), pool_.first_position(sealed), pool_.aux(sealed)};
  }
  void write_pages(const Head& head, std::span<const PageId> pages, const Tensor& k, const Tensor& v,
                   const Buffer& beside);

  KvPool& pool_;
  KvShape shape_;
  KvShare share_;
  std::vector<Head> heads_;  // [layers, kv_heads]
  int32_t next_position_ = 0;
  int32_t settled_ = 0;     // next_position() when pages were last there in one form only
  int32_t demoted_at_ = 0;  // next_position() at the last demote()
};

}  // namespace godwit
