// Gives the blocks and segments of an attention call to threads, for any walk.
//
// A Walk is the arithmetic of one target: it takes a block of queries over the pages of one segment at a time and
// leaves a State; see attention_walk-inl.h. It has a static kBlockQueries, scratch_floats(shape, queries),
// width(shape) and fold(total, segment), which adds a segment's state to that of the segments before it. It is told
// which page its thread will most likely read next, for sequences that generate have few pages each.
#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/attention_state.h"
#include "backend/cpu/attention_work.h"

namespace godwit::cpu {

template <class Walk>
class AttentionDrive {
 public:
  AttentionDrive(Context& context, const AttentionArgs& args) : context_(context), args_(args), shape_(args) {}

  void run() {
    clear_uncovered(context_, args_, shape_);
    blocks_ = query_blocks(*args_.plan, shape_, Walk::kBlockQueries);
    const auto threads = static_cast<size_t>(context_.pool.threads());
    if (threads > 1 && blocks_.size() < 4 * threads) {
      const std::vector<SegmentUnit> units = segment_units(*args_.plan, blocks_);
      if (units.size() > blocks_.size()) return split_blocks(units);
    }
    context_.pool.parallel_for(static_cast<int64_t>(blocks_.size()),
                               [&](int64_t index, int thread) { whole_block(thread, static_cast<size_t>(index)); });
  }

 private:
  // Segment states in flight are held to this: a prefill of a very long cache folds them batch by batch.
  static constexpr size_t kStateBudgetBytes = size_t{64} << 20;

  size_t width() const { return Walk::width(shape_); }
  size_t queries(const QueryBlock& block) const {
    return static_cast<size_t>(block.row_end - block.row_begin) * static_cast<size_t>(shape_.group);
  }
  float* scratch(int thread, const QueryBlock& block) {
    return reinterpret_cast<float*>(
        context_.scratch(thread, Walk::scratch_floats(shape_, queries(block)) * sizeof(float)));
  }

  // The first page of what this thread takes after item `index`, if all take turns; null: it is the last.
  template <class Item>
  const PageRef* after(std::span<const Item> items, size_t index) const {
    const size_t next = index + static_cast<size_t>(context_.pool.threads());
    if (next >= items.size() || items[next].page_begin == items[next].page_end) return nullptr;
    return &args_.plan->pages[items[next].page_begin];
  }

  void whole_block(int thread, size_t index) {
    const QueryBlock& block = blocks_[index];
    const size_t count = queries(block);
    Walk walk(args_, shape_, block, scratch(thread, block));
    State total(walk.spare(), count, width()), segment(walk.spare() + State::floats(count, width()), count, width());
    begin_block(block, total);
    for (uint32_t page = block.page_begin; page < block.page_end;) {
      const uint32_t end = segment_end(*args_.plan, page, block.page_end);
      walk.segment(page, end, segment,
                   end < block.page_end ? &args_.plan->pages[end] : after(std::span<const QueryBlock>(blocks_), index));
      Walk::fold(total, segment);
      page = end;
      poll(thread);
    }
    end_block(block, total);
  }

  // One state per unit, side by side from `memory`; `offsets` are theirs.
  void walk_units(std::span<const SegmentUnit> units, float* memory, std::span<const size_t> offsets) {
    context_.pool.parallel_for(static_cast<int64_t>(units.size()), [&](int64_t index, int thread) {
      const SegmentUnit& unit = units[static_cast<size_t>(index)];
      const QueryBlock& block = blocks_[unit.block];
      Walk walk(args_, shape_, block, scratch(thread, block));
      State state(memory + offsets[static_cast<size_t>(index)], queries(block), width());
      walk.segment(unit.page_begin, unit.page_end, state, after(units, static_cast<size_t>(index)));
      poll(thread);
    });
  }

  void split_blocks(std::span<const SegmentUnit> units) {
    std::vector<size_t> totals;  // offset of each block's running state
    size_t total_floats = 0, largest = 0;
    for (const QueryBlock& block : blocks_) {
      totals.push_back(total_floats);
      const size_t floats = State::floats(queries(block), width());
      total_floats += floats;
      largest = std::max(largest, floats);
    }
    const size_t unit_floats = std::min(units.size() * largest, std::max(largest, kStateBudgetBytes / sizeof(float)));
    auto* memory = reinterpret_cast<float*>(context_.shared_scratch((total_floats + unit_floats) * sizeof(float)));
    float* states = memory + total_floats;

    std::vector<size_t> offsets, firsts;  // of the batch: each unit's state; each block's first unit
    for (size_t begin = 0; begin < units.size();) {
      offsets.clear();
      firsts.clear();
      size_t used = 0, end = begin;
      for (; end < units.size(); ++end) {
        const size_t floats = State::floats(queries(blocks_[units[end].block]), width());
        if (used + floats > unit_floats) break;
        if (end == begin || units[end].block != units[end - 1].block) firsts.push_back(end - begin);
        offsets.push_back(used);
        used += floats;
      }
      const auto batch = units.subspan(begin, end - begin);
      walk_units(batch, states, offsets);
      context_.pool.parallel_for(static_cast<int64_t>(firsts.size()), [&](int64_t index) {
        size_t at = firsts[static_cast<size_t>(index)];
        const uint32_t id = batch[at].block;
        const QueryBlock& block = blocks_[id];
        State total(memory + totals[id], queries(block), width());
        if (batch[at].page_begin == block.page_begin) begin_block(block, total);
        for (; at < batch.size() && batch[at].block == id; ++at) {
          Walk::fold(total, State(states + offsets[at], total.queries, width()));
          if (batch[at].last) end_block(block, total);
        }
      });
      begin = end;
    }
  }

  void poll(int thread) const {
    if (thread == 0 && args_.poll != nullptr) (*args_.poll)();
  }

  // Calls each(query of the block, its row, its head).
  template <class Each>
  void each_query(const QueryBlock& block, const Each& each) const {
    const auto group = static_cast<size_t>(shape_.group);
    for (size_t i = 0; i < queries(block); ++i)
      each(i, static_cast<size_t>(block.row_begin) + i / group, static_cast<size_t>(block.kv_head) * group + i % group);
  }
  void begin_block(const QueryBlock& block, State& total) const {
    total.clear();
    if (!args_.resumes) return;
    each_query(block, [&](size_t query, size_t row, size_t head) {
      total.load(query, state_at(args_.state, row, head), static_cast<size_t>(shape_.head_dim));
    });
  }
  void end_block(const QueryBlock& block, const State& total) const {
    const auto head_dim = static_cast<size_t>(shape_.head_dim);
    each_query(block, [&](size_t query, size_t row, size_t head) {
      if (args_.state) {
        total.store(query, state_at(args_.state, row, head), head_dim);
      } else {
        total.normalise(query, args_.partial, row, head, head_dim);
      }
    });
  }

  Context& context_;
  const AttentionArgs& args_;
  const AttentionShape shape_;
  std::vector<QueryBlock> blocks_;
};

// Takes the states of a walk's segments together as the walk itself would have.
template <class Walk>
void finish_attention(Context& context, const FinishAttentionArgs& args) {
  const Tensor& out = args.partial.out;
  const auto heads = static_cast<size_t>(out.shape[1]), head_dim = static_cast<size_t>(out.shape[2]);
  const size_t width = (head_dim + 15) / 16 * 16, floats = State::floats(heads, width);
  check_partial(args.partial, out.shape[0], static_cast<int>(heads), args.format.head_dim);
  for (const Tensor& state : args.states)
    check_attention_state(state, out.shape[0], static_cast<int>(heads), args.format.head_dim);
  context.pool.parallel_for(out.shape[0], [&](int64_t index, int thread) {
    const auto row = static_cast<size_t>(index);
    auto* memory = reinterpret_cast<float*>(context.scratch(thread, 2 * floats * sizeof(float)));
    State total(memory, heads, width), segment(memory + floats, heads, width);
    total.clear();
    segment.clear();
    for (const Tensor& state : args.states) {
      for (size_t head = 0; head < heads; ++head) segment.load(head, state_at(state, row, head), head_dim);
      Walk::fold(total, segment);
    }
    for (size_t head = 0; head < heads; ++head) total.normalise(head, args.partial, row, head, head_dim);
  });
}

}  // namespace godwit::cpu
