#include "attn/plan.h"

#include <algorithm>

namespace godwit {
namespace {

Result<std::unique_ptr<AttentionPlanner>> make_planner(std::string_view kind,
                                                       std::span<const AttentionPlannerRow* const> table,
                                                       std::string_view spec) {
  GODWIT_ASSIGN(ChosenMethod<AttentionPlannerRow> planner, choose_method(kind, table, spec));
  return planner.row->make(planner.args);
}

}  // namespace

std::vector<SegmentPart> parts_of(const AttentionSegment& segment, int layer, int head) {
  const KvSequence& sequence = *segment.sequence;
  const size_t slot = sequence.slots_before(layer, head, segment.first_position);
  if (!sequence.sealing()) return {{segment, slot}};
  const auto page_tokens = static_cast<size_t>(sequence.pool().format().page_tokens);
  std::vector<SegmentPart> parts;
  for (SegmentPart rest{segment, slot}; rest.segment.row_begin < segment.row_end;) {
    SegmentPart part = rest;
    const auto count = static_cast<int32_t>(page_tokens - part.row_slot % page_tokens);
    part.segment.row_end = std::min(segment.row_end, part.segment.row_begin + count);
    parts.push_back(part);
    rest.segment.row_begin += count;
    rest.segment.first_position += count;
    rest.row_slot += static_cast<size_t>(count);
  }
  return parts;
}

Result<std::unique_ptr<AttentionPlanner>> make_prefill_planner(std::string_view spec) {
  return make_planner("prefill method", all_prefill_planners(), spec);
}

Result<std::unique_ptr<AttentionPlanner>> make_decode_planner(std::string_view spec) {
  return make_planner("decode method", all_decode_planners(), spec);
}

}  // namespace godwit
