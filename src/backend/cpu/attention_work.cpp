#include "backend/cpu/attention_work.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/attention_state.h"
#include "backend/cpu/page_layout.h"

namespace godwit::cpu {

AttentionShape::AttentionShape(const AttentionArgs& args)
    : rows(args.q.shape[0]),
      q_heads(static_cast<int>(args.q.shape[1])),
      kv_heads(args.kv_heads),
      group(kv_heads > 0 ? q_heads / kv_heads : 0),
      head_dim(args.format.head_dim),
      page_tokens(args.format.page_tokens) {
  check_kv_format(args.format);
  GODWIT_CHECK(head_dim > 0 && head_dim % 8 == 0, "head_dim {}", head_dim);
  GODWIT_CHECK(page_tokens > 0 && page_tokens % 16 == 0 && page_tokens <= kMaxPageTokens, "page_tokens {}",
               page_tokens);
  GODWIT_CHECK(args.q.rank == 3 && args.q.dtype == DType::kF32 && args.q.shape[2] == head_dim);
  GODWIT_CHECK(kv_heads > 0 && group > 0 && group * kv_heads == q_heads, "{} query, {} KV heads", q_heads, kv_heads);
  GODWIT_CHECK(args.positions.dtype == DType::kI32 && args.positions.elements() == rows && args.positions.contiguous());
  if (args.state) {
    check_attention_state(args.state, rows, q_heads, head_dim);
  } else {
    GODWIT_CHECK(!args.resumes, "nothing to go on from");
    check_partial(args.partial, rows, q_heads, head_dim);
  }
  GODWIT_CHECK(args.window >= 0 && args.softcap >= 0);
  GODWIT_CHECK(args.plan != nullptr && (args.slab != nullptr || args.plan->pages.empty()));
  GODWIT_CHECK(args.format.seals == (args.open_slab != nullptr));
}

void check_partial(const AttnPartial& partial, int64_t rows, int q_heads, int head_dim) {
  GODWIT_CHECK(partial.out.rank == 3 && partial.out.dtype == DType::kF32);
  GODWIT_CHECK(partial.out.shape[0] == rows && partial.out.shape[1] == q_heads && partial.out.shape[2] == head_dim);
  GODWIT_CHECK(partial.lse.rank == 2 && partial.lse.dtype == DType::kF32);
  GODWIT_CHECK(partial.lse.shape[0] == rows && partial.lse.shape[1] == q_heads);
}

void check_attention_state(const Tensor& state, int64_t rows, int q_heads, int head_dim) {
  GODWIT_CHECK(state.rank == 3 && state.dtype == DType::kF32 && state.contiguous());
  GODWIT_CHECK(state.shape[0] == rows && state.shape[1] == q_heads &&
               state.shape[2] == attention_state_width(head_dim));
}

std::vector<QueryBlock> query_blocks(const AttentionPlan& plan, const AttentionShape& shape, int block_queries) {
  const int32_t step = std::max(1, block_queries / shape.group);
  std::vector<QueryBlock> blocks;
  for (const AttentionTile& tile : plan.tiles) {
    GODWIT_CHECK(0 <= tile.row_begin && tile.row_begin <= tile.row_end && tile.row_end <= shape.rows);
    GODWIT_CHECK(0 <= tile.kv_head && tile.kv_head < shape.kv_heads);
    GODWIT_CHECK(tile.page_begin <= tile.page_end && tile.page_end <= plan.pages.size());
    for (int32_t row = tile.row_begin; row < tile.row_end; row += step)
      blocks.push_back({row, std::min(row + step, tile.row_end), tile.kv_head, tile.page_begin, tile.page_end});
  }
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const QueryBlock& a, const QueryBlock& b) { return a.row_begin > b.row_begin; });
  return blocks;
}

uint32_t segment_end(const AttentionPlan& plan, uint32_t begin, uint32_t end) {
  const uint32_t segment = plan.pages[begin].ordinal / kSegmentPages;
  uint32_t at = begin + 1;
  while (at < end && plan.pages[at].ordinal / kSegmentPages == segment) {
    GODWIT_DCHECK(plan.pages[at].ordinal > plan.pages[at - 1].ordinal);
    ++at;
  }
  return at;
}

std::vector<SegmentUnit> segment_units(const AttentionPlan& plan, std::span<const QueryBlock> blocks) {
  std::vector<SegmentUnit> units;
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const QueryBlock& block = blocks[i];
    uint32_t page = block.page_begin;
    do {  // a block without pages still has one unit: someone must write its empty partial
      uint32_t end = page < block.page_end ? segment_end(plan, page, block.page_end) : page;
      units.push_back({i, page, end, end == block.page_end});
      page = end;
    } while (page < block.page_end);
  }
  return units;
}

void clear_uncovered(Context& context, const AttentionArgs& args, const AttentionShape& shape) {
  int64_t covered = 0;
  for (const AttentionTile& tile : args.plan->tiles) covered += tile.row_end - tile.row_begin;
  GODWIT_CHECK(covered <= shape.rows * shape.kv_heads, "tiles overlap");
  if (covered == shape.rows * shape.kv_heads || args.resumes) return;
  context.pool.parallel_for((shape.rows + 63) / 64, [&](int64_t chunk) {
    for (int64_t row = chunk * 64; row < std::min(shape.rows, chunk * 64 + 64); ++row) {
      const auto at = static_cast<size_t>(row);
      if (args.state) {
        for (int head = 0; head < shape.q_heads; ++head)
          store_empty(state_at(args.state, at, static_cast<size_t>(head)), static_cast<size_t>(shape.head_dim));
        continue;
      }
      std::memset(args.partial.out.data + at * args.partial.out.row_stride_bytes, 0,
                  static_cast<size_t>(shape.q_heads) * static_cast<size_t>(shape.head_dim) * sizeof(float));
      auto* lse = reinterpret_cast<float*>(args.partial.lse.data + at * args.partial.lse.row_stride_bytes);
      std::fill_n(lse, shape.q_heads, -std::numeric_limits<float>::infinity());
    }
  });
}

PageView::PageView(const AttentionArgs& args, const PageRef& ref)
    : k(args.page(ref)),
      v(k + args.format.k_bytes(ref.page)),
      open(is_open(ref.page)),
      count(static_cast<int>(ref.count)),
      min_position(ref.first_position),
      max_position(ref.first_position + count - 1) {
  GODWIT_DCHECK(count <= args.format.page_tokens);
  if (ref.aux == kNoAux) return;
  GODWIT_DCHECK(args.aux != nullptr);
  const std::byte* slot_data = args.aux + ref.aux * args.format.aux_bytes();
  positions = reinterpret_cast<const int32_t*>(slot_data);
  bias = reinterpret_cast<const float*>(positions + args.format.page_tokens);
  if (count == 0) return;
  const auto [low, high] = std::minmax_element(positions, positions + count);
  min_position = *low;
  max_position = *high;
}

Visibility visibility(const PageView& page, int32_t lowest, int32_t highest, int32_t window) {
  // No query sees the page if even the latest comes before its first slot, or the earliest is past its last's window.
  if (page.count == 0 || page.min_position > highest) return Visibility::kNone;
  if (window > 0 && static_cast<int64_t>(lowest) - page.max_position >= window) return Visibility::kNone;
  const bool all =
      page.max_position <= lowest && (window == 0 || static_cast<int64_t>(highest) - page.min_position < window);
  return all ? Visibility::kAll : Visibility::kSome;
}

PositionSpan::PositionSpan(int32_t query_position, int32_t window)
    : oldest(std::numeric_limits<int32_t>::min()), newest(query_position) {
  if (window > 0) oldest = static_cast<int32_t>(std::max<int64_t>(oldest, int64_t{query_position} - window + 1));
}

SlotRange visible_run(const PageView& page, int from, PositionSpan span) {
  if (page.positions == nullptr) {
    const int64_t begin = std::max<int64_t>(from, int64_t{span.oldest} - page.min_position);
    const int64_t end = std::min<int64_t>(page.count, int64_t{span.newest} - page.min_position + 1);
    if (begin >= end) return {};
    return {static_cast<int>(begin), static_cast<int>(end)};
  }
  int begin = from;
  while (begin < page.count && !span.holds(page.positions[begin])) ++begin;
  int end = begin;
  while (end < page.count && span.holds(page.positions[end])) ++end;
  return {begin, end};
}

}  // namespace godwit::cpu
