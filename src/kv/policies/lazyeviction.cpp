#include <algorithm>
#include <cmath>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"window", "128", "newest tokens that stay"},
    {"alpha", "1", "a query uses a token that it gives this many times the average weight"},
};

class LazyEviction final : public KvPolicy {
 public:
  LazyEviction(size_t window, float alpha) : window_(window), alpha_(alpha) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kAll, .last_queries = 0, .use_factor = alpha_};
  }
  size_t least_slots() const override { return window_ + 1; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    for (size_t i = 0; i < head.slots(); ++i) {
      const int32_t used = std::max(head.last_use[i], head.positions[i]);
      const auto idle = static_cast<float>(head.next_position - 1 - used);
      const auto interval = static_cast<float>(std::max(head.longest_gap[i], 1));
      const float due = 2 / (1 + std::exp(idle / interval));  // 1: just used; 0: overdue by many intervals
      const float recurs = static_cast<float>(head.longest_gap[i]) / (interval + static_cast<float>(window_));
      scores[i] = due + recurs;
    }
    protect(head, 0, window_, scores);
  }

 private:
  size_t window_;
  float alpha_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 1, 1 << 20));
  GODWIT_ASSIGN(const double alpha, args.real("alpha", 1e-6, 1e6));
  return std::make_unique<LazyEviction>(static_cast<size_t>(window), static_cast<float>(alpha));
}

}  // namespace

// A token has the time of its last use and the longest interval between two uses; it is dropped when it is overdue by
// its own measure, and among equals the one with short intervals goes first. The paper's idea; the exact form of its
// score is not known to us, and its threshold for a use is absolute where ours goes with the average weight.
extern const KvPolicyRow kv_policy_lazyeviction = {
    .info = {.name = "lazyeviction",
             .description = "tokens that are used again and again, judged by their longest interval so far",
             .reference = "Zhang et al., LazyEviction: Lagged KV Eviction with Attention Pattern Observation for "
                          "Efficient Long Reasoning, arXiv 2506.15969",
             .params = kParams},
    .trigger = "128",
    .make = make,
};

}  // namespace godwit
