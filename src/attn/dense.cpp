#include "attn/dense.h"

namespace godwit {
namespace {

class Dense final : public AttentionPlanner {
 public:
  void add(const PlanRequest& request, AttentionPlan& plan) override { add_dense(request, plan); }
};

}  // namespace

void add_dense(const PlanRequest& request, AttentionPlan& plan) {
  for (const AttentionSegment& segment : request.segments) {
    GODWIT_CHECK(segment.sequence != nullptr && segment.row_begin <= segment.row_end);
    if (segment.row_begin == segment.row_end) continue;
    const KvSequence& sequence = *segment.sequence;
    const auto page_tokens = static_cast<size_t>(sequence.pool().format().page_tokens);
    for (int head = 0; head < sequence.shape().kv_heads; ++head) {
      for (const SegmentPart& part : parts_of(segment, request.layer, head)) {
        const AttentionSegment& rows = part.segment;
        const int32_t end_position = rows.first_position + (rows.row_end - rows.row_begin);
        const size_t begin_slot =
            request.window > 0 ? sequence.slots_before(request.layer, head, rows.first_position - request.window + 1)
                               : 0;
        const size_t end_slot = sequence.slots_before(request.layer, head, end_position);
        if (begin_slot >= end_slot) continue;
        AttentionTile tile{.row_begin = rows.row_begin, .row_end = rows.row_end, .kv_head = head};
        tile.page_begin = static_cast<uint32_t>(plan.pages.size());
        sequence.list_pages(request.layer, head, begin_slot / page_tokens, (end_slot + page_tokens - 1) / page_tokens,
                            plan.pages, part.row_slot);
        tile.page_end = static_cast<uint32_t>(plan.pages.size());
        plan.tiles.push_back(tile);
      }
    }
  }
}

AttentionPlan dense_plan(const PlanRequest& request) {
  AttentionPlan plan;
  add_dense(request, plan);
  return plan;
}

Result<std::unique_ptr<AttentionPlanner>> make_dense_planner(const MethodArgs&) {
  return std::make_unique<Dense>();
}

}  // namespace godwit
