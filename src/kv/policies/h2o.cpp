#include <cmath>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {{"recent", "0.5", "share of the budget for the newest tokens"}};

class H2o final : public KvPolicy {
 public:
  explicit H2o(double recent) : recent_(recent) {}

  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kAll, .last_queries = 0, .use_factor = 0}; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    std::copy(head.mass.begin(), head.mass.end(), scores.begin());
    protect(head, 0, static_cast<size_t>(std::ceil(recent_ * static_cast<double>(head.budget))), scores);
  }

 private:
  double recent_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const double recent, args.real("recent", 0, 1));
  return std::make_unique<H2o>(recent);
}

}  // namespace

// The query heads of a KV head add up. Deviation: the paper drops one token at each step; here the trigger decides
// (--kv-trigger 1 is the paper's way while a text is generated).
extern const KvPolicyRow kv_policy_h2o = {
    .info = {.name = "h2o",
             .description = "heavy hitters, by the attention of all queries so far, and the newest",
             .reference = "Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language "
                          "Models, arXiv 2306.14048",
             .params = kParams},
    .trigger = "chunk",
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
