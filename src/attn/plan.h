// From sequences to AttentionPlans: which pages the rows of a batch read in one layer.
//
// A batch is cut into segments, each a run of query rows of one sequence at consecutive positions. A planner adds to a
// plan one or more tiles per segment and KV head; prefill and decode segments of one batch may go to different planners
// and into the same plan. One method is one file of prefill/ or decode/, which exports one row named
// prefill_planner_<file> or decode_planner_<file>.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/attention.h"
#include "kv/method.h"
#include "kv/sequence.h"

namespace godwit {

struct AttentionSegment {
  const KvSequence* sequence = nullptr;  // holds the rows' own tokens already
  int32_t row_begin = 0, row_end = 0;    // query rows
  int32_t first_position = 0;            // of row_begin
  int32_t prompt_end = 0;                // position behind the prompt that the rows are of; 0: behind the last row
};

struct PlanRequest {
  int layer = 0;
  int32_t window = 0;  // of the layer's attention; 0 = none
  std::span<const AttentionSegment> segments;
  Tensor q = {};  // [rows, heads, head_dim] f32: the layer's queries, on the device
};

// A segment cut where the rows of one KV head begin to read other forms of pages (see KvFormat::seals): each part may
// be a tile. `row_slot` is the slot of its first row, for KvSequence::list_pages.
struct SegmentPart {
  AttentionSegment segment;
  size_t row_slot = 0;
};
std::vector<SegmentPart> parts_of(const AttentionSegment& segment, int layer, int head);

// May keep state between calls; one thread at a time.
class AttentionPlanner {
 public:
  virtual ~AttentionPlanner() = default;
  virtual void add(const PlanRequest& request, AttentionPlan& plan) = 0;
  // So many rows at a prompt's end are treated otherwise because they are there: their K and V are of no use to a
  // prompt that goes on.
  virtual int32_t tail_rows() const { return 0; }
  // After so many generated tokens, the K and V that they wrote are computed again with dense attention. 0: never.
  virtual int repair_every() const { return 0; }
};

struct AttentionPlannerRow {
  MethodInfo info;
  Result<std::unique_ptr<AttentionPlanner>> (*make)(const MethodArgs& args);
};

std::span<const AttentionPlannerRow* const> all_prefill_planners();  // by name; generated
std::span<const AttentionPlannerRow* const> all_decode_planners();

// From NAME[:k=v,…].
Result<std::unique_ptr<AttentionPlanner>> make_prefill_planner(std::string_view spec);
Result<std::unique_ptr<AttentionPlanner>> make_decode_planner(std::string_view spec);

}  // namespace godwit
