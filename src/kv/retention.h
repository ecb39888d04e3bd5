// Holds a sequence to a budget: when the trigger says so, slots are observed and scored, and what the budget does not
// keep is dropped or merged into what stays, so that its pages are free. A policy that demotes loses nothing: the
// budget is what stays in open pages, in numbers, and the rest goes to sealed ones, in codes, for good.
//
// Neither can be undone: forgetting tokens that came before one is exact only if the sequence is computed anew, see
// shortest_exact(). With a trigger that fires every n tokens, a sequence never holds more than the budget and the
// larger of n and one chunk (KvRetentionRules::residence).
//
// Of a sequence that several processes keep together, each holds its share to the budget of all: they tell each other
// what the policy wants to know of slots, score all of them alike, and each drops its own. They take the same steps.
#pragma once

#include <optional>

#include "kv/attention_observer.h"
#include "kv/attention_totals.h"
#include "kv/budget.h"
#include "kv/gathered_slots.h"
#include "kv/policy.h"
#include "kv/query_window.h"
#include "kv/select.h"

namespace godwit {

struct KvRetentionOptions {  // as a user writes them
  std::string policy, budget, trigger;
  int prefill_chunk = 512;
  bool equal_pages = true;  // the codec's, in all layers
};

// The rules that all sequences of an engine keep. Immutable.
struct KvRetentionRules {
  NamedKvPolicy method;
  KvBudget budget;
  KvTrigger trigger;
  int prefill_chunk = 0;
  int q_heads = 0;
  KvFormat format;             // of sequences under these rules
  KvRetentionOptions written;  // what they were made of

  // Checks everything that can be checked before a sequence exists. REQUIRES: options.policy is not empty.
  static Result<std::shared_ptr<const KvRetentionRules>> make(const KvRetentionOptions& options, const KvShape& shape,
                                                              const KvFormat& format, int q_heads);
  // With a policy that was made before, in place of options.policy.
  static Result<std::shared_ptr<const KvRetentionRules>> make(NamedKvPolicy method, const KvRetentionOptions& options,
                                                              const KvShape& shape, const KvFormat& format,
                                                              int q_heads);

  // Tokens that may come between two looks, whatever the cut into steps; 0: no bound.
  int most_between() const { return trigger.every > 0 ? std::max(trigger.every, prefill_chunk) : 0; }
  KvResidence residence(const KvShape& shape) const;  // where the policy demotes, of open slots
  // What a head may keep on average once `tokens` tokens have been seen.
  size_t slots_per_head(int32_t tokens, const KvShape& shape) const;

  // Whether what is dropped depends on how tokens are cut into steps: whoever wants a Session's results takes its
  // steps, which end at multiples of prefill_chunk and at the prompt's end, and then have one token each.
  bool by_pieces() const { return trigger.every > 0 || method.policy->needs().queries == KvNeeds::Queries::kAll; }
  // How many tokens at the beginning of a prompt a sequence may take from another and come to the same: those before
  // the first look, but for the queries that a look wants to have seen.
  size_t shareable(size_t prompt_tokens) const;
  // Equal for rules that come to the same, as long as both have the same policy object: a name would not tell of the
  // files that a policy was read from.
  std::string key() const;
};

// Whether so many processes can keep such rules together; the error names the policy and says why not.
Status check_over_ranks(const NamedKvPolicy& method, const KvFormat& format, int ranks);

class KvRetention final : public AttentionObserver {
 public:
  // All live as long as this. `peers` has the other shares of the sequence; null: it is whole. REQUIRES of peers:
  // check_over_ranks() is well.
  KvRetention(std::shared_ptr<const KvRetentionRules> rules, KvSequence& sequence, KvPeers* peers = nullptr);
  // The same state for a fork of the sequence.
  KvRetention(const KvRetention& other, KvSequence& fork);
  KvRetention(const KvRetention&) = delete;
  KvRetention& operator=(const KvRetention&) = delete;

  // A step of `rows` tokens: prepare(), the sequence appends, the model runs with this as its observer, finish(). An
  // error is kExhausted: there is no memory to observe, or none for the copies of shared pages that a drop needs; the
  // sequence is sound, and the next step tries again.
  Status prepare(int rows);
  // With peers, before the model runs: which rows are computed here. attended() then has those, in this order, with the
  // lse over everyone's slots and without a plan.
  void computes(std::vector<int32_t> positions);
  void attended(int layer, const AttentionArgs& args) override;
  Status finish(int rows, bool prompt_ends);
  // Whether prepare(), or finish(), will look; it then drops entries, and may need as much memory again as what stays.
  bool looks_before(int rows) const;
  bool looks_after(int rows, bool prompt_ends) const;

  // The sequence begins with so many tokens that were computed for another. REQUIRES: no step was taken, and
  // rules.shareable() allows it.
  void skip(int32_t tokens);
  bool observes() const { return window_ || totals_; }  // else attended() need not be called
  bool whole() const { return settled_ == 0; }          // nothing was ever dropped
  size_t bytes_beside() const;                          // memory that is not the sequence's

  // The least number of tokens that truncate() may leave without changing what the rest would have been.
  int32_t shortest_exact() const;
  void forget(int32_t end_position);  // after truncate()

 private:
  // What all peers say, if there are any.
  Status agreed(const Status& mine) { return peers_ == nullptr ? mine : peers_->agree(mine); }
  bool over_budget(const GatheredSlots& slots) const;
  Status apply();
  Status look();
  // What queries attend to in a layer, of each head's slots; empty where nobody asks, or totals_ has it.
  Result<std::vector<KvSlotStats>> see(int layer, const GatheredSlots& slots);
  // What is known of a head; `seen` is that of its layer.
  Result<KvHeadView> view(int layer, int head, const GatheredSlots& slots, std::span<const KvSlotStats> seen);
  Status score_all(const GatheredSlots& slots, std::vector<ScoredHead>& heads, std::vector<double>& demands);
  Status read_keys_values(int layer, int head);
  Status drop_head(int layer, int head, const GatheredSlots& slots, std::span<const uint32_t> kept);
  Status drop(const GatheredSlots& slots, std::span<const std::vector<uint32_t>> kept);
  Status demote(std::span<const ScoredHead> heads, std::span<const std::vector<uint32_t>> kept);

  std::shared_ptr<const KvRetentionRules> rules_;
  KvNeeds needs_;
  KvSequence& sequence_;
  KvPeers* peers_ = nullptr;
  std::optional<QueryWindow> window_;
  std::optional<AttentionTotals> totals_;
  int since_ = 0;        // tokens since the last look
  bool due_ = false;     // a look is owed
  int32_t settled_ = 0;  // tokens that the sequence had at its last drop
  Buffer scratch_;
  std::vector<int32_t> computed_;               // with peers: positions of the step's rows that are computed here
  std::vector<float> keys_, values_, counts_;   // of the head that was looked at last
  std::vector<int32_t> query_positions_;        // during a look
  std::vector<std::vector<KvSlotStats>> seen_;  // [layers][kv_heads] of see(), likewise, if the policy merges
};

}  // namespace godwit
