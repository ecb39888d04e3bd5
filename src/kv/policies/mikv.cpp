#include <algorithm>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {{"base", "h2o", "policy that says what keeps its numbers, NAME[:k=v;…]"}};

// The base's scores as they are; what becomes of the others is not a matter of scores.
class MiKv final : public KvPolicy {
 public:
  explicit MiKv(std::shared_ptr<const KvPolicy> base) : base_(std::move(base)) {}

  KvNeeds needs() const override { return base_->needs(); }
  size_t least_slots() const override { return base_->least_slots(); }
  double demand(const KvHeadView& head) const override { return base_->demand(head); }
  void score(const KvHeadView& head, std::span<float> scores) const override { base_->score(head, scores); }

 private:
  std::shared_ptr<const KvPolicy> base_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  std::string base = args.text("base");
  std::replace(base.begin(), base.end(), ';', ',');
  if (base.starts_with("mikv"))
    return errorf(ErrorCode::kInvalidArgument, "base of KV policy 'mikv' is itself; give another policy");
  GODWIT_ASSIGN(const NamedKvPolicy chosen, make_kv_policy(base, shape));
  if (!chosen.row->needs_budget || chosen.row->demotes || chosen.policy->merges())
    return errorf(ErrorCode::kInvalidArgument,
                  "base of KV policy 'mikv' is '{}', which does not choose by a budget what stays as it is",
                  chosen.row->info.name);
  return std::make_unique<MiKv>(chosen.policy);
}

}  // namespace

// The budget is what keeps its numbers, in f16; the rest goes to the codec's sealed pages. Deviations: the paper has 8
// bits as a choice for what is kept, and balances channels of Q and K before coding, which a codec of K by dimension
// (kivi) needs no more.
extern const KvPolicyRow kv_policy_mikv = {
    .info = {.name = "mikv",
             .description = "what another policy would drop goes to the codec's sealed pages instead",
             .reference = "Yang et al., No Token Left Behind: Reliable KV Cache Compression via Importance-Aware Mixed "
                          "Precision Quantization, arXiv 2402.18096",
             .params = kParams},
    .trigger = "chunk",
    .demotes = true,
    .make = make,
};

}  // namespace godwit
