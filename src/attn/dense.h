// Dense attention: one tile per segment and KV head that lists every page a row of the segment may see, which is all
// but those wholly after its last row or wholly before the window of its first. The same for a prompt and for single
// tokens, so the files of prefill/ and decode/ only export this row.
#pragma once

#include "attn/plan.h"

namespace godwit {

void add_dense(const PlanRequest& request, AttentionPlan& plan);
AttentionPlan dense_plan(const PlanRequest& request);
Result<std::unique_ptr<AttentionPlanner>> make_dense_planner(const MethodArgs& args);

inline constexpr AttentionPlannerRow kDensePlanner = {
    .info = {.name = "dense",
             .description = "exact attention: every page that a row may see",
             .reference = "Vaswani et al., Attention Is All You Need, arXiv 1706.03762",
             .params = {}},
    .make = make_dense_planner,
};

}  // namespace godwit
