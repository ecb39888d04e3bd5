#include "attn/plan.h"

namespace godwit {
namespace {

Result<std::unique_ptr<AttentionPlanner>> make_planner(std::string_view kind,
                                                       std::span<const AttentionPlannerRow* const> table,
                                                       std::string_view spec) {
  GODWIT_ASSIGN(ChosenMethod<AttentionPlannerRow> planner, choose_method(kind, table, spec));
  return planner.row->make(planner.args);
}

}  // namespace

Result<std::unique_ptr<AttentionPlanner>> make_prefill_planner(std::string_view spec) {
  return make_planner("prefill method", all_prefill_planners(), spec);
}

Result<std::unique_ptr<AttentionPlanner>> make_decode_planner(std::string_view spec) {
  return make_planner("decode method", all_decode_planners(), spec);
}

}  // namespace godwit
