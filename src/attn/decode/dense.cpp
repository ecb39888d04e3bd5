#include "attn/plan.h"

namespace godwit {
namespace {

class Dense final : public AttentionPlanner {
 public:
  void add(const PlanRequest& request, AttentionPlan& plan) override { add_dense(request, plan); }
};

Result<std::unique_ptr<AttentionPlanner>> make(const MethodArgs&) {
  return std::make_unique<Dense>();
}

}  // namespace

extern const AttentionPlannerRow decode_planner_dense = {
    .info = {.name = "dense",
             .description = "exact attention: every page that a row may see",
             .reference = "Vaswani et al., Attention Is All You Need, arXiv 1706.03762",
             .params = {}},
    .make = make,
};

}  // namespace godwit
