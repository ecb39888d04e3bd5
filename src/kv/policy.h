// KV retention policies: which slots of a cache are worth their memory.
//
// A policy scores the slots of one (layer, KV head) and may say which slots that do not stay join one that does; it
// does nothing else. How many slots may stay (KvBudget), when that is looked at (KvTrigger), dropping and merging are
// the affair of others; see budget.h, select.h, merge.h and retention.h. What a policy wants to know of a cache it says
// in needs(), and nothing else is observed.
//
// One method is one file of policies/, which exports one row named kv_policy_<file>. A policy is immutable and may be
// shared by any number of sequences and threads.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kv/method.h"
#include "kv/sequence.h"

namespace godwit {

struct KvNeeds {
  enum class Queries {
    kNone,
    kLast,  // what the last `last_queries` queries attend to, of what is in the cache when slots are scored
    kAll,   // what every query attended to when it was computed
  };
  Queries queries = Queries::kNone;
  int last_queries = 0;
  float use_factor = 1;      // what counts as a use of a slot (see ObserveArgs); 0 with kAll: uses are of no interest
  bool keys_values = false;  // K and V themselves
};

// What is known of the slots of one head. Spans are [slots] in order of positions; those not asked for are empty.
struct KvHeadView {
  int layer = 0, head = 0;
  int32_t next_position = 0;           // of the sequence
  size_t budget = 0;                   // slots that a head may keep if all heads keep the same number
  std::span<const int32_t> positions;  // ascending

  std::span<const int32_t> query_positions;        // kLast: of the queries, ascending
  std::span<const float> mass, square;             // see ObserveArgs; square with kLast only
  std::span<const int32_t> uses;                   // kLast only
  std::span<const int32_t> last_use, longest_gap;  // kAll only; -1 and 0 where a slot was never used
  std::span<const float> keys, values;             // [slots, head_dim]
  std::span<const float> counts;                   // with keys and values: tokens that a slot stands for
  size_t head_dim = 0;

  size_t slots() const { return positions.size(); }
  std::span<const float> key(size_t slot) const { return keys.subspan(slot * head_dim, head_dim); }
  std::span<const float> value(size_t slot) const { return values.subspan(slot * head_dim, head_dim); }
};

// A slot becomes the weighted mean of itself and those that go into it; `into` is kept, and where `from` is the same
// this is the weight of the slot itself. Its bias then says how many tokens it stands for.
struct KvMerge {
  uint32_t from = 0, into = 0;
  float weight = 0;
};

inline constexpr float kKeepSlot = std::numeric_limits<float>::infinity();   // as long as the budget allows
inline constexpr float kDropSlot = -std::numeric_limits<float>::infinity();  // whatever the budget allows

class KvPolicy {
 public:
  virtual ~KvPolicy() = default;
  virtual KvNeeds needs() const { return {}; }
  // Higher is better; of equal slots the newer is better. kKeepSlot and kDropSlot are as their names say; NaN is worst.
  virtual void score(const KvHeadView& head, std::span<float> scores) const = 0;
  // Whether slots that do not stay may join others, and which do: all that `kept` (ascending) lacks and that are not
  // named are dropped. REQUIRES of merging policies: needs().keys_values.
  virtual bool merges() const { return false; }
  virtual std::vector<KvMerge> merge(const KvHeadView&, std::span<const uint32_t> /*kept*/) const { return {}; }
  // A layer's part of the budget is in proportion to the sum of this over its heads.
  virtual double demand(const KvHeadView&) const { return 1; }
  // Slots that the policy itself always wants to keep; a budget of fewer makes no sense.
  virtual size_t least_slots() const { return 1; }
};

struct KvPolicyRow {
  MethodInfo info;
  std::string_view trigger;        // what its paper does, in the syntax of KvTrigger
  bool needs_budget = true;        // false: scores of kDropSlot are its budget
  bool comparable_scores = false;  // between heads, so that heads may compete for a common budget
  bool demotes = false;  // what the budget does not keep goes to the codec's sealed pages, and nothing is lost
  Result<std::unique_ptr<const KvPolicy>> (*make)(const MethodArgs& args, const KvShape& shape);
};

std::span<const KvPolicyRow* const> all_kv_policies();  // by name; generated

struct NamedKvPolicy {
  const KvPolicyRow* row = nullptr;
  std::shared_ptr<const KvPolicy> policy;
};
// From NAME[:k=v,…].
Result<NamedKvPolicy> make_kv_policy(std::string_view spec, const KvShape& shape);

// --- what several policies do

// kKeepSlot for the first `sinks` positions of the sequence and the newest `recent` slots.
void protect(const KvHeadView& head, size_t sinks, size_t recent, std::span<float> scores);

// Of equal length.
float dot(std::span<const float> a, std::span<const float> b);
float norm(std::span<const float> x);
float cosine(std::span<const float> a, std::span<const float> b);

// Mean or maximum of `votes` over the `kernel` (odd) neighbours around each; nothing counts past the ends.
void pool_votes(std::span<const float> votes, int kernel, bool max, std::span<float> pooled);

}  // namespace godwit
