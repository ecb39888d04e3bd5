#include "backend/cpu/observe_work.h"

#include <algorithm>

namespace godwit::cpu {

ObserveWork::ObserveWork(const ObserveArgs& args) : args_(args), shape_(args.attention) {
  const AttentionPlan& plan = *args.attention.plan;
  for (const Tensor* output :
       {&args.mass, &args.square, &args.uses, &args.first_use, &args.last_use, &args.longest_gap}) {
    if (!*output && output != &args.mass) continue;
    const bool is_float = output == &args.mass || output == &args.square;
    GODWIT_CHECK(output->rank == 2 && output->dtype == (is_float ? DType::kF32 : DType::kI32));
    GODWIT_CHECK(output->shape[0] >= static_cast<int64_t>(plan.pages.size()) && output->shape[1] == shape_.page_tokens);
  }
  GODWIT_CHECK(bool(args.first_use) == bool(args.last_use) && bool(args.first_use) == bool(args.longest_gap));

  if (args.seen_elsewhere) {
    const Tensor& seen = args.seen_elsewhere;
    GODWIT_CHECK(seen.rank == 2 && seen.dtype == DType::kI32);
    GODWIT_CHECK(seen.shape[0] == shape_.rows && seen.shape[1] == shape_.kv_heads);
  }

  const bool counts_uses = args.uses || args.first_use;
  for (uint32_t i = 0; i < plan.tiles.size(); ++i) {
    const AttentionTile& tile = plan.tiles[i];
    GODWIT_CHECK(0 <= tile.row_begin && tile.row_begin <= tile.row_end && tile.row_end <= shape_.rows);
    GODWIT_CHECK(0 <= tile.kv_head && tile.kv_head < shape_.kv_heads && tile.page_end <= plan.pages.size());
    for (uint32_t page = tile.page_begin; page < tile.page_end; ++page) items_.push_back({i, page});
    if (!counts_uses) continue;
    std::vector<float>& thresholds = thresholds_.emplace_back();
    for (int32_t row = tile.row_begin; row < tile.row_end; ++row) {
      int64_t seen = seen_elsewhere(row, tile.kv_head);
      for (uint32_t at = tile.page_begin; at < tile.page_end; ++at) {
        const PageView page(args.attention, plan.pages[at]);
        for (SlotRange run = visible_run(page, 0, sees(row)); !run.empty(); run = visible_run(page, run.end, sees(row)))
          seen += run.end - run.begin;
      }
      thresholds.push_back(args.use_factor / static_cast<float>(std::max<int64_t>(seen, 1)));
    }
  }
}

const float* ObserveWork::query(int32_t row, int head) const {
  const Tensor& q = attention().q;
  return reinterpret_cast<const float*>(q.data + static_cast<size_t>(row) * q.row_stride_bytes) +
         static_cast<size_t>(head) * static_cast<size_t>(shape_.head_dim);
}

float ObserveWork::lse(int32_t row, int head) const {
  const Tensor& lse = attention().partial.lse;
  return reinterpret_cast<const float*>(lse.data + static_cast<size_t>(row) * lse.row_stride_bytes)[head];
}

int32_t ObserveWork::seen_elsewhere(int32_t row, int kv_head) const {
  const Tensor& seen = args_.seen_elsewhere;
  if (!seen) return 0;
  return reinterpret_cast<const int32_t*>(seen.data + static_cast<size_t>(row) * seen.row_stride_bytes)[kv_head];
}

template <class T>
T* ObserveWork::line(const Tensor& output, const Item& item) const {
  return output ? reinterpret_cast<T*>(output.data + item.page * output.row_stride_bytes) : nullptr;
}

void ObserveWork::clear(const Item& item) const {
  const int tokens = shape_.page_tokens;
  for (const Tensor* output : {&args_.mass, &args_.square})
    if (auto* at = line<float>(*output, item)) std::fill_n(at, tokens, 0.0f);
  for (const Tensor* output : {&args_.uses, &args_.longest_gap})
    if (auto* at = line<int32_t>(*output, item)) std::fill_n(at, tokens, 0);
  for (const Tensor* output : {&args_.first_use, &args_.last_use})
    if (auto* at = line<int32_t>(*output, item)) std::fill_n(at, tokens, -1);
}

void ObserveWork::add(const Item& item, const PageView& page, int32_t row, const float* weights) const {
  auto *mass = line<float>(args_.mass, item), *square = line<float>(args_.square, item);
  auto *uses = line<int32_t>(args_.uses, item), *first = line<int32_t>(args_.first_use, item);
  auto *last = line<int32_t>(args_.last_use, item), *gap = line<int32_t>(args_.longest_gap, item);
  for (SlotRange run = visible_run(page, 0, sees(row)); !run.empty(); run = visible_run(page, run.end, sees(row))) {
    for (int i = run.begin; i < run.end; ++i) mass[i] += weights[i];
    if (square != nullptr)
      for (int i = run.begin; i < run.end; ++i) square[i] += weights[i] * weights[i];
    if (uses == nullptr && first == nullptr) continue;
    const float threshold = thresholds_[item.tile][static_cast<size_t>(row - tile(item).row_begin)];
    for (int i = run.begin; i < run.end; ++i) {
      if (!(weights[i] >= threshold)) continue;
      if (uses != nullptr) ++uses[i];
      if (first == nullptr) continue;
      if (first[i] < 0) first[i] = position(row);
      if (last[i] >= 0) gap[i] = std::max(gap[i], position(row) - last[i]);
      last[i] = position(row);
    }
  }
}

}  // namespace godwit::cpu
