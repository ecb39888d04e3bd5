#include "attn/dense.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"sinks", "128", "first tokens that every row reads"},
    {"window", "4096", "tokens before a row that it reads"},
    {"tail", "128", "last rows of a prompt, which read everything"},
};

// Rows at positions of one multiple of this share a list of pages: the first of them reads `window` tokens, the last up
// to kRows - 1 more. Groups go by position, so results do not depend on how a prompt is cut into chunks.
constexpr int32_t kRows = 256;

class TriShape final : public AttentionPlanner {
 public:
  TriShape(int32_t sinks, int32_t window, int32_t tail) : sinks_(sinks), window_(window), tail_(tail) {}

  void add(const PlanRequest& request, AttentionPlan& plan) override {
    for (const AttentionSegment& segment : request.segments) {
      const int32_t end = segment.first_position + segment.row_end - segment.row_begin;
      const int32_t tail = std::max(segment.prompt_end, end) - tail_;
      int32_t position = segment.first_position;
      while (position < std::min(end, tail)) {
        const int32_t next = std::min({position - position % kRows + kRows, end, tail});
        add_group(request, rows_of(segment, position, next), plan);
        position = next;
      }
      const AttentionSegment dense = rows_of(segment, position, end);
      add_dense({.layer = request.layer, .window = request.window, .segments = {&dense, 1}, .q = request.q}, plan);
    }
  }
  int32_t tail_rows() const override { return tail_; }

 private:
  static AttentionSegment rows_of(const AttentionSegment& segment, int32_t begin, int32_t end) {
    const int32_t row = segment.row_begin + begin - segment.first_position;
    return {segment.sequence, row, row + end - begin, begin, segment.prompt_end};
  }

  void add_group(const PlanRequest& request, const AttentionSegment& group, AttentionPlan& plan) const {
    for (int head = 0; head < group.sequence->shape().kv_heads; ++head)
      for (const SegmentPart& part : parts_of(group, request.layer, head)) add_part(request, part, head, plan);
  }

  void add_part(const PlanRequest& request, const SegmentPart& part, int head, AttentionPlan& plan) const {
    const AttentionSegment& group = part.segment;
    const KvSequence& sequence = *group.sequence;
    const auto page_tokens = static_cast<size_t>(sequence.pool().format().page_tokens);
    const auto pages_up_to = [&](size_t slots) { return (slots + page_tokens - 1) / page_tokens; };
    const int32_t first = group.first_position - group.first_position % kRows;
    const int32_t end = group.first_position + group.row_end - group.row_begin;
    const auto slots_before = [&](int32_t position) { return sequence.slots_before(request.layer, head, position); };
    // Pages that the layer's own window hides from all rows may be listed; they count for nothing.
    const size_t sink_end = pages_up_to(slots_before(std::min(sinks_, end)));
    const size_t local_end = pages_up_to(slots_before(end));
    const size_t local_begin = std::max(sink_end, slots_before(first - window_ + 1) / page_tokens);
    AttentionTile tile{.row_begin = group.row_begin, .row_end = group.row_end, .kv_head = head};
    tile.page_begin = static_cast<uint32_t>(plan.pages.size());
    sequence.list_pages(request.layer, head, 0, sink_end, plan.pages, part.row_slot);
    if (local_begin < local_end)
      sequence.list_pages(request.layer, head, local_begin, local_end, plan.pages, part.row_slot);
    tile.page_end = static_cast<uint32_t>(plan.pages.size());
    if (tile.page_begin < tile.page_end) plan.tiles.push_back(tile);
  }

  int32_t sinks_, window_, tail_;
};

Result<std::unique_ptr<AttentionPlanner>> make(const MethodArgs& args) {
  GODWIT_ASSIGN(const int64_t sinks, args.integer("sinks", 0, 1 << 24));
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 1, 1 << 24));
  GODWIT_ASSIGN(const int64_t tail, args.integer("tail", 0, 1 << 24));
  return std::make_unique<TriShape>(static_cast<int32_t>(sinks), static_cast<int32_t>(window),
                                    static_cast<int32_t>(tail));
}

}  // namespace

// Whole pages are read: sinks and window are rounded up to them.
extern const AttentionPlannerRow prefill_planner_trishape = {
    .info = {.name = "trishape",
             .description = "the first tokens and the nearest; the last rows of a prompt read everything",
             .reference = "Li et al., SCBench: A KV Cache-Centric Analysis of Long-Context Methods, arXiv 2412.10319",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
