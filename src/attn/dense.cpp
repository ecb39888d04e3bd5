#include "attn/dense.h"

#include <algorithm>

namespace godwit {
namespace {

class Dense final : public AttentionPlanner {
 public:
  void add(const PlanRequest& request, AttentionPlan& plan) override {
    for (const AttentionSegment& segment : request.segments) {
      GODWIT_CHECK(segment.sequence != nullptr && segment.row_begin <= segment.row_end);
      if (segment.row_begin == segment.row_end) continue;
      const int32_t page_tokens = segment.sequence->pool().format().page_tokens;
      // While pages are there in two forms, rows on both sides of a page's end may read different ones.
      for (AttentionSegment rest = segment; rest.row_begin < segment.row_end;) {
        AttentionSegment part = rest;
        if (segment.sequence->sealing())
          part.row_end = std::min(part.row_end, part.row_begin + page_tokens - part.first_position % page_tokens);
        add(request, part, plan);
        rest.first_position += part.row_end - part.row_begin;
        rest.row_begin = part.row_end;
      }
    }
  }

 private:
  static void add(const PlanRequest& request, const AttentionSegment& segment, AttentionPlan& plan) {
    const KvSequence& sequence = *segment.sequence;
    const auto page_tokens = static_cast<size_t>(sequence.pool().format().page_tokens);
    const int32_t end_position = segment.first_position + (segment.row_end - segment.row_begin);
    const int32_t begin_position = request.window > 0 ? segment.first_position - request.window + 1 : INT32_MIN;
    for (int head = 0; head < sequence.shape().kv_heads; ++head) {
      size_t begin_slot = sequence.slots_before(request.layer, head, begin_position);
      size_t end_slot = sequence.slots_before(request.layer, head, end_position);
      if (begin_slot >= end_slot) continue;
      AttentionTile tile{.row_begin = segment.row_begin, .row_end = segment.row_end, .kv_head = head};
      tile.page_begin = static_cast<uint32_t>(plan.pages.size());
      sequence.list_pages(request.layer, head, begin_slot / page_tokens, (end_slot + page_tokens - 1) / page_tokens,
                          plan.pages, segment.first_position);
      tile.page_end = static_cast<uint32_t>(plan.pages.size());
      plan.tiles.push_back(tile);
    }
  }
};

}  // namespace

AttentionPlan dense_plan(const PlanRequest& request) {
  AttentionPlan plan;
  Dense().add(request, plan);
  return plan;
}

Result<std::unique_ptr<AttentionPlanner>> make_dense_planner(const MethodArgs&) {
  return std::make_unique<Dense>();
}

}  // namespace godwit
