#include <algorithm>
#include <cmath>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"recent", "0.5", "share of the budget for the newest tokens"},
    {"tau", "", "least cosine of keys that are merged (default: the mean over what is dropped of its best)"},
};

class D2o final : public KvPolicy {
 public:
  D2o(double recent, float tau) : recent_(recent), tau_(tau) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kAll, .last_queries = 0, .use_factor = 0, .keys_values = true};
  }
  bool merges() const override { return true; }

  void score(const KvHeadView& head, std::span<float> scores) const override {
    std::copy(head.mass.begin(), head.mass.end(), scores.begin());
    protect(head, 0, static_cast<size_t>(std::ceil(recent_ * static_cast<double>(head.budget))), scores);
  }

  // Layers whose attention is spread evenly keep more: a dense layer's heavy hitters are fewer.
  double demand(const KvHeadView& head) const override {
    double sum = 0, squares = 0;
    for (float mass : head.mass) sum += static_cast<double>(mass);
    if (sum <= 0) return 1;
    const auto slots = static_cast<double>(head.slots());
    for (float mass : head.mass) {
      const double share = static_cast<double>(mass) * slots / sum - 1;  // 0: what an even spread gives
      squares += share * share;
    }
    return std::exp(-std::min(std::sqrt(squares / slots) / std::sqrt(slots), 1.0));
  }

  std::vector<KvMerge> merge(const KvHeadView& head, std::span<const uint32_t> kept) const override {
    std::vector<float> norms(head.slots());
    for (size_t i = 0; i < head.slots(); ++i) norms[i] = std::max(norm(head.key(i)), 1e-20F);
    struct Best {
      uint32_t from, into;
      float likeness;
    };
    std::vector<Best> found;
    size_t next = 0;
    double sum = 0;
    for (uint32_t slot = 0; slot < head.slots(); ++slot) {
      if (next < kept.size() && kept[next] == slot) {
        ++next;
        continue;
      }
      Best best{slot, 0, -2};
      for (uint32_t into : kept) {
        const float likeness = dot(head.key(slot), head.key(into)) / (norms[slot] * norms[into]);
        if (likeness > best.likeness) best = {slot, into, likeness};
      }
      if (best.likeness < -1.5F) continue;
      found.push_back(best);
      sum += static_cast<double>(best.likeness);
    }
    const float tau =
        std::isnan(tau_) && !found.empty() ? static_cast<float>(sum / static_cast<double>(found.size())) : tau_;
    std::vector<KvMerge> merges;
    for (uint32_t slot : kept) merges.push_back({slot, slot, head.counts[slot] * std::exp(1.0F)});
    for (const Best& best : found)
      if (best.likeness >= tau)
        merges.push_back({best.from, best.into, head.counts[best.from] * std::exp(best.likeness)});
    return merges;
  }

 private:
  double recent_;
  float tau_;  // NaN: the mean
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const double recent, args.real("recent", 0, 1));
  double tau = std::nan("");
  if (!args.text("tau").empty()) {
    GODWIT_ASSIGN(tau, args.real("tau", -1, 2));
  }
  return std::make_unique<D2o>(recent, static_cast<float>(tau));
}

}  // namespace

// h2o's choice; what it would drop joins the kept entry with the most similar key, weighted by e^cosine, where that is
// at least as similar as the average. Deviations: the paper carries the threshold on from look to look as a moving
// average; it leaves the first two layers and the last one whole, which no budget could hold; counts weigh, and bias
// what is merged. tau=2 merges nothing.
extern const KvPolicyRow kv_policy_d2o = {
    .info = {.name = "d2o",
             .description = "h2o, and what it would drop joins the most similar entry that stays, if it is similar",
             .reference = "Wan et al., D2O: Dynamic Discriminative Operations for Efficient Long-Context Inference of "
                          "Large Language Models, arXiv 2406.13035",
             .params = kParams},
    .trigger = "chunk",
    .make = make,
};

}  // namespace godwit
