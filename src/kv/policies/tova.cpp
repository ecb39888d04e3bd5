#include "kv/policy.h"

namespace godwit {
namespace {

class Tova final : public KvPolicy {
 public:
  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kLast, .last_queries = 1}; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    std::copy(head.mass.begin(), head.mass.end(), scores.begin());
    protect(head, 0, 1, scores);
  }
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs&, const KvShape&) {
  return std::make_unique<Tova>();
}

}  // namespace

// Deviations: each KV head decides for itself, since its pages are its own (the paper takes the mean over a layer's
// heads); the paper drops one token at each step, here the trigger decides.
extern const KvPolicyRow kv_policy_tova = {
    .info = {.name = "tova",
             .description = "what the last query attends to",
             .reference = "Oren et al., Transformers are Multi-State RNNs, arXiv 2401.06104",
             .params = {}},
    .trigger = "chunk",
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
