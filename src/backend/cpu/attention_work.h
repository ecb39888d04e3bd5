// What of an attention call runs where: the parts of the CPU's attention that need no SIMD.
//
// A plan's tiles are cut into query blocks (a few rows with all query heads of one KV head), and those, when there are
// fewer blocks than threads could take, into segments. A segment's state does not depend on the cut, so the cut is free
// to follow the machine. Plain data and pure functions; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

inline constexpr int kMaxPageTokens = 256;

struct QueryBlock {
  int32_t row_begin = 0, row_end = 0;
  int32_t kv_head = 0;
  uint32_t page_begin = 0, page_end = 0;  // range of AttentionPlan::pages
};

// A run of a block's pages that ends before or at the next segment boundary.
struct SegmentUnit {
  uint32_t block = 0;
  uint32_t page_begin = 0, page_end = 0;
  bool last = false;  // of its block
};

// Shapes of a call, checked.
struct AttentionShape {
  explicit AttentionShape(const AttentionArgs& args);

  int64_t rows;
  int q_heads, kv_heads, group;  // group = q_heads / kv_heads
  int head_dim, page_tokens;
};

void check_partial(const AttnPartial& partial, int64_t rows, int q_heads, int head_dim);
void check_attention_state(const Tensor& state, int64_t rows, int q_heads, int head_dim);

// A query is one (row, query head); a block holds at most `block_queries` of them, or one row's if a group is larger.
// Later rows come first: they see more of a causal prompt, and what takes longest should not start last.
std::vector<QueryBlock> query_blocks(const AttentionPlan& plan, const AttentionShape& shape, int block_queries);
std::vector<SegmentUnit> segment_units(const AttentionPlan& plan, std::span<const QueryBlock> blocks);
// End of the run of pages from `begin` that share a segment.
uint32_t segment_end(const AttentionPlan& plan, uint32_t begin, uint32_t end);

// Writes the empty partial, or state, everywhere unless the walk resumes or the tiles cover every (row, KV head).
void clear_uncovered(Context& context, const AttentionArgs& args, const AttentionShape& shape);

// --- visibility

struct SlotRange {
  int begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// A page as one call sees it.
struct PageView {
  PageView(const AttentionArgs& args, const PageRef& ref);

  const std::byte* k;                  // [head_dim, page_tokens], or codes: page_layout.h
  const std::byte* v;                  // [page_tokens, head_dim]
  bool open;                           // K and V are numbers of the open format
  const int32_t* positions = nullptr;  // [page_tokens] when explicit
  const float* bias = nullptr;         // [page_tokens] when explicit
  int count;
  int32_t min_position, max_position;  // of the filled slots; meaningless if count is 0
};

enum class Visibility { kNone, kSome, kAll };

// Of a page's filled slots to queries whose positions span [lowest, highest].
Visibility visibility(const PageView& page, int32_t lowest, int32_t highest, int32_t window);

// Positions that a query may see: oldest..newest.
struct PositionSpan {
  PositionSpan(int32_t query_position, int32_t window);
  bool holds(int32_t position) const { return oldest <= position && position <= newest; }

  int32_t oldest, newest;
};

// The first run of visible slots at or after `from`; empty when there is none. Implicit positions have one run.
SlotRange visible_run(const PageView& page, int from, PositionSpan span);

}  // namespace godwit::cpu
