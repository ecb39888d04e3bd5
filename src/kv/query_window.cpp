#include "kv/query_window.h"

#include <algorithm>
#include <numeric>

namespace godwit {

QueryWindow::QueryWindow(int queries, int layers, int q_heads)
    : queries_(queries),
      layers_(layers),
      q_heads_(q_heads),
      attention_(static_cast<size_t>(layers)),
      held_(static_cast<size_t>(queries), -1) {
  GODWIT_CHECK(queries > 0 && layers > 0 && q_heads > 0);
}

QueryWindow::QueryWindow(const QueryWindow& other)
    : queries_(other.queries_),
      layers_(other.layers_),
      q_heads_(other.q_heads_),
      head_dim_(other.head_dim_),
      attention_(other.attention_),
      kept_(other.kept_),
      first_(other.first_),
      end_(other.end_),
      held_(other.held_),
      written_(other.written_) {}

Tensor QueryWindow::layer_queries(int layer) const {
  const Tensor all(kept_.data(), DType::kF32, {layers_, queries_, q_heads_, head_dim_});
  return Tensor(all.data + static_cast<size_t>(layer) * all.row_stride_bytes, DType::kF32,
                {queries_, q_heads_, head_dim_});
}

Status QueryWindow::own_queries(Backend& backend) {
  const int64_t rows = int64_t{layers_} * queries_, width = int64_t{q_heads_} * head_dim_;
  if (kept_.memory == nullptr) return ensure_bytes(backend, kept_, static_cast<size_t>(rows * width) * sizeof(float));
  if (kept_.memory.use_count() == 1) return {};
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  GODWIT_ASSIGN(Buffer ids, backend.allocate(all.size() * sizeof(int32_t)));
  GODWIT_ASSIGN(Buffer copy, backend.allocate(kept_.bytes));
  backend.upload(ids.data(), std::as_bytes(std::span(all)));
  backend.gather_rows(Tensor(kept_.data(), DType::kF32, {rows, width}), Tensor(ids.data(), DType::kI32, {rows}),
                      Tensor(copy.data(), DType::kF32, {rows, width}));
  backend.synchronize();
  kept_ = copy;
  return {};
}

Status QueryWindow::prepare(const KvPool& pool, int32_t begin, int rows) {
  Backend& backend = pool.backend();
  head_dim_ = pool.format().head_dim;
  step_begin_ = begin;
  step_rows_ = rows;
  GODWIT_TRY(own_queries(backend));
  GODWIT_TRY(ensure_bytes(backend, step_picks_, static_cast<size_t>(queries_) * sizeof(int32_t)));
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), begin);
  computes(backend, all);
  return {};
}

void QueryWindow::computes(Backend& backend, std::span<const int32_t> positions) {
  const auto first = std::lower_bound(positions.begin(), positions.end(), step_begin_ + step_rows_ - queries_);
  step_here_ = static_cast<int64_t>(positions.size());
  step_positions_.assign(first, positions.end());
  step_runs_.clear();
  std::vector<int32_t> picks;
  for (int32_t position : step_positions_) {
    const auto pick = static_cast<int64_t>(picks.size()), place = int64_t{position % queries_};
    if (step_runs_.empty() || place != step_runs_.back().place + step_runs_.back().count)
      step_runs_.push_back({pick, place, 0});
    ++step_runs_.back().count;
    picks.push_back(static_cast<int32_t>(first - positions.begin() + pick));
  }
  if (!picks.empty()) backend.upload(step_picks_.data(), std::as_bytes(std::span(picks)));
}

void QueryWindow::attended(Backend& backend, int layer, const AttentionArgs& args) {
  GODWIT_CHECK(args.q.shape[0] == step_here_ && args.q.shape[1] == q_heads_ && args.q.shape[2] == head_dim_);
  attention_[static_cast<size_t>(layer)] = {args.scale, args.softcap, args.window};
  const Tensor picks(step_picks_.data(), DType::kI32, {queries_}), kept = layer_queries(layer);
  for (const Run& run : step_runs_)
    backend.gather_rows(args.q, picks.slice(run.pick, run.pick + run.count),
                        kept.slice(run.place, run.place + run.count));
}

void QueryWindow::finish() {
  GODWIT_CHECK(step_begin_ == end_, "the window ends at {}, the step began at {}", end_, step_begin_);
  end_ += step_rows_;
  first_ = std::max(first_, end_ - queries_);
  written_ = std::max(written_, std::min(end_, queries_));
  for (int32_t position : step_positions_) held_[static_cast<size_t>(position % queries_)] = position;
}

std::vector<int32_t> QueryWindow::positions() const {
  std::vector<int32_t> list(static_cast<size_t>(end_ - first_));
  std::iota(list.begin(), list.end(), first_);
  return list;
}

Status QueryWindow::fill(Backend& backend, int layer, AttentionArgs& args) {
  std::vector<int32_t> row_positions(static_cast<size_t>(written_), -1);  // which sees nothing
  for (int32_t p = first_; p < end_; ++p) row_positions[static_cast<size_t>(p % queries_)] = p;
  const size_t numbers = static_cast<size_t>(written_) * static_cast<size_t>(q_heads_);
  GODWIT_TRY(ensure_bytes(backend, positions_, static_cast<size_t>(queries_) * sizeof(int32_t)));
  GODWIT_TRY(ensure_bytes(backend, partial_, numbers * static_cast<size_t>(head_dim_ + 1) * sizeof(float)));
  backend.upload(positions_.data(), std::as_bytes(std::span(row_positions)));
  args.q = layer_queries(layer).slice(0, written_);
  args.positions = Tensor(positions_.data(), DType::kI32, {written_});
  args.partial.out = Tensor(partial_.data(), DType::kF32, {written_, q_heads_, head_dim_});
  args.partial.lse = Tensor(partial_.data() + args.partial.out.bytes(), DType::kF32, {written_, q_heads_});
  return {};
}

Status QueryWindow::gather(Backend& backend, int layer, KvPeers& peers) {
  std::vector<int32_t> positions, places;
  for (int32_t p = first_; p < end_; ++p) {
    const int32_t place = p % queries_;
    if (held_[static_cast<size_t>(place)] != p) continue;
    positions.push_back(p);
    places.push_back(place);
  }
  return gathered_.gather(backend, {.positions = positions, .at = places, .q = layer_queries(layer)}, peers);
}

Result<std::vector<KvSlotStats>> QueryWindow::look(const KvSequence& sequence, int layer, float use_factor,
                                                   KvPeers* peers) {
  const KvPool& pool = sequence.pool();
  Backend& backend = pool.backend();
  const int heads = sequence.shape().kv_heads;
  const LayerAttention& settings = attention_[static_cast<size_t>(layer)];
  AttentionArgs args;
  args.format = pool.format(layer);
  args.slab = pool.slab(layer);
  args.open_slab = pool.open_slab();
  args.aux = pool.aux_slab();
  args.kv_heads = heads;
  args.scale = settings.scale;
  args.softcap = settings.softcap;
  args.window = settings.window;
  if (peers != nullptr) {
    GODWIT_TRY(gather(backend, layer, *peers));
    gathered_.fill(args);
  } else {
    GODWIT_TRY(fill(backend, layer, args));
  }
  AttentionPlan plan;
  for (int head = 0; head < heads; ++head)
    list_tile(sequence, layer, head, static_cast<int32_t>(args.q.shape[0]), plan);
  args.plan = &plan;
  backend.attention(args);
  ObserveWants wants{.square = true, .uses = true, .use_factor = use_factor};
  if (peers != nullptr) {
    GODWIT_TRY(gathered_.merge_lse(backend, *peers));
    GODWIT_ASSIGN(wants.seen_elsewhere, gathered_.seen_elsewhere(sequence, layer, settings.window, *peers));
  }
  GODWIT_ASSIGN(KvSlotStats all, observe_plan(backend, args, wants, scratch_));

  std::vector<KvSlotStats> stats;
  for (int head = 0; head < heads; ++head) {
    const auto begin =
        plan.tiles[static_cast<size_t>(head)].page_begin * static_cast<ptrdiff_t>(args.format.page_tokens);
    const auto end = begin + static_cast<ptrdiff_t>(sequence.slots(layer, head));
    stats.push_back({.mass = {all.mass.begin() + begin, all.mass.begin() + end},
                     .square = {all.square.begin() + begin, all.square.begin() + end},
                     .uses = {all.uses.begin() + begin, all.uses.begin() + end},
                     .first_use = {},
                     .last_use = {},
                     .longest_gap = {}});
  }
  return stats;
}

void QueryWindow::forget(int32_t end_position) {
  end_ = std::min(end_, end_position);
  first_ = std::min(first_, end_);
  for (int32_t& position : held_)
    if (position >= end_) position = -1;  // another process may compute it next
}

}  // namespace godwit
