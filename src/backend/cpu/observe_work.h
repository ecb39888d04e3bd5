// The parts of observe() that need no SIMD: checked arguments, what runs where, and the sums over rows. Thread-safe.
#pragma once

#include <vector>

#include "backend/cpu/attention_work.h"
#include "backend/observe.h"

namespace godwit::cpu {

class ObserveWork {
 public:
  // One page of one tile: an item of the parallel loop, which alone writes row `page` of the outputs.
  struct Item {
    uint32_t tile = 0;
    uint32_t page = 0;  // index of AttentionPlan::pages
  };

  explicit ObserveWork(const ObserveArgs& args);

  const AttentionArgs& attention() const { return args_.attention; }
  const AttentionShape& shape() const { return shape_; }
  const std::vector<Item>& items() const { return items_; }
  const AttentionTile& tile(const Item& item) const { return attention().plan->tiles[item.tile]; }
  PageView page(const Item& item) const { return {attention(), attention().plan->pages[item.page]}; }
  PositionSpan sees(int32_t row) const { return {position(row), attention().window}; }
  const float* query(int32_t row, int head) const;  // [head_dim]
  float lse(int32_t row, int head) const;

  void clear(const Item& item) const;
  // Adds the weights [page_tokens] of one row; only slots that it sees are looked at. Rows come in order.
  void add(const Item& item, const PageView& page, int32_t row, const float* weights) const;

 private:
  template <class T>
  T* line(const Tensor& output, const Item& item) const;
  int32_t seen_elsewhere(int32_t row, int kv_head) const;
  int32_t position(int32_t row) const { return reinterpret_cast<const int32_t*>(attention().positions.data)[row]; }

  const ObserveArgs& args_;
  AttentionShape shape_;
  std::vector<Item> items_;
  std::vector<std::vector<float>> thresholds_;  // [tiles][rows of the tile]: the weight from which on a slot is used
};

// `Weights(work, page, kv_head, scratch)` is made for a page that some row sees; `weights(row, out)` then writes the
// row's weights of the page's slots, where those that it does not see may get anything.
template <class Weights>
void observe_with(Context& context, const ObserveArgs& args) {
  const ObserveWork work(args);
  const auto page_tokens = static_cast<size_t>(work.shape().page_tokens);
  context.pool.parallel_for(static_cast<int64_t>(work.items().size()), [&](int64_t index, int thread) {
    const ObserveWork::Item& item = work.items()[static_cast<size_t>(index)];
    const AttentionTile& tile = work.tile(item);
    const PageView page = work.page(item);
    work.clear(item);
    auto* out = reinterpret_cast<float*>(
        context.scratch(thread, (page_tokens + Weights::scratch_floats(work.shape())) * sizeof(float)));
    const Weights weights(work, page, tile.kv_head, out + page_tokens);
    for (int32_t row = tile.row_begin; row < tile.row_end; ++row) {
      if (visible_run(page, 0, work.sees(row)).empty()) continue;
      weights(row, out);
      work.add(item, page, row, out);
    }
  });
}

}  // namespace godwit::cpu
