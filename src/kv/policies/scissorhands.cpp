#include <algorithm>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"window", "400", "last queries that are looked at"},
    {"recent", "16", "newest tokens that stay"},
};

class Scissorhands final : public KvPolicy {
 public:
  Scissorhands(int window, size_t recent) : window_(window), recent_(recent) {}

  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kLast, .last_queries = window_}; }
  size_t least_slots() const override { return recent_ + 1; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    const auto begin = head.query_positions.begin(), end = head.query_positions.end();
    for (size_t i = 0; i < head.slots(); ++i) {
      const auto saw_it = static_cast<int32_t>(end - std::lower_bound(begin, end, head.positions[i]));
      const int32_t below_average = saw_it - head.uses[i];
      scores[i] = -static_cast<float>(below_average);
    }
    protect(head, 0, recent_, scores);
  }

 private:
  int window_;
  size_t recent_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 1, 4096));
  GODWIT_ASSIGN(const int64_t recent, args.integer("recent", 0, 1 << 20));
  return std::make_unique<Scissorhands>(static_cast<int>(window), static_cast<size_t>(recent));
}

}  // namespace

// Counts how often a query gave a token less than its average weight, 1 / (tokens it saw). Deviations: all layers get
// the same budget (the paper calibrates one that grows with depth); a look drops to the budget and not to half of it.
extern const KvPolicyRow kv_policy_scissorhands = {
    .info = {.name = "scissorhands",
             .description = "tokens that few of the last queries gave less than an average weight",
             .reference = "Liu et al., Scissorhands: Exploiting the Persistence of Importance Hypothesis for LLM KV "
                          "Cache Compression at Test Time, arXiv 2305.17118",
             .params = kParams},
    .trigger = "chunk",
    .make = make,
};

}  // namespace godwit
