#include <algorithm>
#include <cmath>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"window", "32", "last queries that are looked at; their tokens stay"},
    {"kernel", "5", "scores are averaged over this many neighbours"},
    {"gamma", "200", "weight of the variance over queries in a token's score"},
    {"tau1", "1", "a layer's demand grows with entropy ^ (1 / tau1)"},
    {"tau2", "1", "... and with the variance over queries ^ (1 / tau2)"},
};

class Cake final : public KvPolicy {
 public:
  struct Settings {
    int window, kernel;
    double gamma, tau1, tau2;
  };
  explicit Cake(const Settings& settings) : s_(settings) {}

  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kLast, .last_queries = s_.window}; }
  size_t least_slots() const override { return static_cast<size_t>(s_.window) + 1; }

  void score(const KvHeadView& head, std::span<float> scores) const override {
    const size_t old = judged(head);
    std::vector<float> votes;
    for (size_t i = 0; i < old; ++i) votes.push_back(static_cast<float>(mean(head, i) + s_.gamma * variance(head, i)));
    pool_votes(votes, s_.kernel, false, scores);
    protect(head, 0, head.slots() - old, scores);
  }

  double demand(const KvHeadView& head) const override {
    double entropy = 0, spread = 0;
    for (size_t i = 0; i < judged(head); ++i) {
      if (const double p = mean(head, i); p > 0) entropy -= p * std::log(p);
      spread += variance(head, i);
    }
    return std::pow(std::max(entropy, 0.0), 1 / s_.tau1) * std::pow(spread, 1 / s_.tau2);
  }

 private:
  static size_t judged(const KvHeadView& head) {
    return head.slots() - std::min(head.slots(), head.query_positions.size());
  }
  static double queries(const KvHeadView& head) {
    return static_cast<double>(std::max<size_t>(head.query_positions.size(), 1));
  }
  static double mean(const KvHeadView& head, size_t i) { return static_cast<double>(head.mass[i]) / queries(head); }
  static double variance(const KvHeadView& head, size_t i) {
    return std::max(0.0, static_cast<double>(head.square[i]) / queries(head) - mean(head, i) * mean(head, i));
  }

  Settings s_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 2, 4096));
  GODWIT_ASSIGN(const int64_t kernel, args.odd_integer("kernel", 1, 1023));
  GODWIT_ASSIGN(const double gamma, args.real("gamma", 0, 1e6));
  GODWIT_ASSIGN(const double tau1, args.real("tau1", 0.01, 100));
  GODWIT_ASSIGN(const double tau2, args.real("tau2", 0.01, 100));
  return std::make_unique<Cake>(Cake::Settings{static_cast<int>(window), static_cast<int>(kernel), gamma, tau1, tau2});
}

}  // namespace

// Layers share the budget by how spread and how changeable their attention is. Deviations: the mean over the query
// heads of a KV head is taken before the variance; layers are weighed when the trigger fires and not one after the
// other during the prompt (--kv-trigger chunk bounds the peak).
extern const KvPolicyRow kv_policy_cake = {
    .info = {.name = "cake",
             .description = "snapkv's votes and their variance, with a budget for each layer from entropy and variance",
             .reference = "Qin et al., CAKE: Cascading and Adaptive KV Cache Eviction with Layer Preferences, "
                          "arXiv 2503.12491",
             .params = kParams},
    .trigger = "prefill",
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
