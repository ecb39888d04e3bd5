// Attention over pages for every SIMD target. attention_walk-inl.h says what a block computes; here blocks and segments
// are given to threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/attention_walk-inl.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/partials.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// Segment states in flight are held to this: a prefill of a very long cache folds them batch by batch.
inline constexpr size_t kStateBudgetBytes = size_t{64} << 20;

struct Call {
  const AttentionArgs& args;
  const AttentionShape& shape;
  std::vector<QueryBlock> blocks;

  size_t queries(const QueryBlock& block) const {
    return static_cast<size_t>(block.row_end - block.row_begin) * static_cast<size_t>(shape.group);
  }
};

void write_partial(const Call& call, const QueryBlock& block, const State& state) {
  const auto group = static_cast<size_t>(call.shape.group), head_dim = static_cast<size_t>(call.shape.head_dim);
  const AttnPartial& partial = call.args.partial;
  for (size_t i = 0; i < state.queries; ++i) {
    const size_t row = static_cast<size_t>(block.row_begin) + i / group;
    const size_t head = static_cast<size_t>(block.kv_head) * group + i % group;
    auto* out = reinterpret_cast<float*>(partial.out.data + row * partial.out.row_stride_bytes) + head * head_dim;
    auto* lse = reinterpret_cast<float*>(partial.lse.data + row * partial.lse.row_stride_bytes) + head;
    const float sum = state.sum[i];
    *lse = sum == 0 ? kMinusInfinity : state.max[i] + std::log(sum);
    const float* from = state.out + i * state.width;
    if (sum == 0) {
      std::fill_n(out, head_dim, 0.0f);
    } else {
      for (size_t j = 0; j < head_dim; ++j) out[j] = from[j] / sum;
    }
  }
}

template <class T>
void whole_block(Context& context, int thread, const Call& call, const QueryBlock& block) {
  const size_t queries = call.queries(block), width = padded_width(call.shape);
  auto* scratch =
      reinterpret_cast<float*>(context.scratch(thread, Walk<T>::scratch_floats(call.shape, queries) * sizeof(float)));
  Walk<T> walk(call.args, call.shape, block, scratch);
  State total(walk.spare(), queries, width), segment(walk.spare() + State::floats(queries, width), queries, width);
  total.clear();
  for (uint32_t page = block.page_begin; page < block.page_end;) {
    const uint32_t end = segment_end(*call.args.plan, page, block.page_end);
    walk.segment(page, end, segment);
    fold(total, segment);
    page = end;
  }
  write_partial(call, block, total);
}

// One state per unit of [begin, end), side by side from `memory`; `offsets` are theirs.
template <class T>
void walk_units(Context& context, const Call& call, std::span<const SegmentUnit> units, float* memory,
                std::span<const size_t> offsets) {
  context.pool.parallel_for(static_cast<int64_t>(units.size()), [&](int64_t index, int thread) {
    const SegmentUnit& unit = units[static_cast<size_t>(index)];
    const QueryBlock& block = call.blocks[unit.block];
    const size_t queries = call.queries(block);
    auto* scratch =
        reinterpret_cast<float*>(context.scratch(thread, Walk<T>::scratch_floats(call.shape, queries) * sizeof(float)));
    Walk<T> walk(call.args, call.shape, block, scratch);
    State state(memory + offsets[static_cast<size_t>(index)], queries, padded_width(call.shape));
    walk.segment(unit.page_begin, unit.page_end, state);
  });
}

template <class T>
void split_blocks(Context& context, const Call& call, std::span<const SegmentUnit> units) {
  const size_t width = padded_width(call.shape);
  std::vector<size_t> totals;  // offset of each block's running state
  size_t total_floats = 0, largest = 0;
  for (const QueryBlock& block : call.blocks) {
    totals.push_back(total_floats);
    const size_t floats = State::floats(call.queries(block), width);
    total_floats += floats;
    largest = std::max(largest, floats);
  }
  const size_t unit_floats = std::min(units.size() * largest, std::max(largest, kStateBudgetBytes / sizeof(float)));
  auto* memory = reinterpret_cast<float*>(context.shared_scratch((total_floats + unit_floats) * sizeof(float)));
  float* states = memory + total_floats;

  std::vector<size_t> offsets, firsts;  // of the batch: each unit's state; each block's first unit
  for (size_t begin = 0; begin < units.size();) {
    offsets.clear();
    firsts.clear();
    size_t used = 0, end = begin;
    for (; end < units.size(); ++end) {
      const size_t floats = State::floats(call.queries(call.blocks[units[end].block]), width);
      if (used + floats > unit_floats) break;
      if (end == begin || units[end].block != units[end - 1].block) firsts.push_back(end - begin);
      offsets.push_back(used);
      used += floats;
    }
    const auto batch = units.subspan(begin, end - begin);
    walk_units<T>(context, call, batch, states, offsets);
    context.pool.parallel_for(static_cast<int64_t>(firsts.size()), [&](int64_t index) {
      size_t at = firsts[static_cast<size_t>(index)];
      const uint32_t id = batch[at].block;
      const QueryBlock& block = call.blocks[id];
      State total(memory + totals[id], call.queries(block), width);
      if (batch[at].page_begin == block.page_begin) total.clear();
      for (; at < batch.size() && batch[at].block == id; ++at) {
        fold(total, State(states + offsets[at], total.queries, width));
        if (batch[at].last) write_partial(call, block, total);
      }
    });
    begin = end;
  }
}

template <class T>
void attend(Context& context, const AttentionArgs& args) {
  const AttentionShape shape(args);
  clear_uncovered(context, args, shape);
  const Call call{args, shape, query_blocks(*args.plan, shape)};
  const auto threads = static_cast<size_t>(context.pool.threads());
  if (threads > 1 && call.blocks.size() < 4 * threads) {
    const std::vector<SegmentUnit> units = segment_units(*args.plan, call.blocks);
    if (units.size() > call.blocks.size()) return split_blocks<T>(context, call, units);
  }
  context.pool.parallel_for(static_cast<int64_t>(call.blocks.size()), [&](int64_t index, int thread) {
    whole_block<T>(context, thread, call, call.blocks[static_cast<size_t>(index)]);
  });
}

void attention(Context& context, const AttentionArgs& args) {
  switch (args.format.dtype) {
    case DType::kF16:
      return attend<F16>(context, args);
    case DType::kBF16:
      return attend<BF16>(context, args);
    default:
      return attend<float>(context, args);
  }
}

void fill(Kernels& table) {
  table.attention = &attention;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(fill);

void fill_attention(Kernels& table) {
  HWY_DYNAMIC_DISPATCH(fill)(table);
  table.kv_write = &kv_write;
  table.merge_partials = &merge_partials;
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
