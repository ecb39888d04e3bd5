#include "kv/query_window.h"

#include <algorithm>
#include <numeric>

namespace godwit {

QueryWindow::QueryWindow(int queries, int layers, int q_heads)
    : queries_(queries), layers_(layers), q_heads_(q_heads), attention_(static_cast<size_t>(layers)) {
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
  std::vector<int32_t> picks(static_cast<size_t>(std::min(rows, queries_)));
  std::iota(picks.begin(), picks.end(), rows - static_cast<int32_t>(picks.size()));
  GODWIT_TRY(ensure_bytes(backend, step_picks_, static_cast<size_t>(queries_) * sizeof(int32_t)));
  backend.upload(step_picks_.data(), std::as_bytes(std::span(picks)));
  return {};
}

void QueryWindow::attended(Backend& backend, int layer, const AttentionArgs& args) {
  GODWIT_CHECK(args.q.shape[0] == step_rows_ && args.q.shape[1] == q_heads_ && args.q.shape[2] == head_dim_);
  attention_[static_cast<size_t>(layer)] = {args.scale, args.softcap, args.window};
  const int64_t count = std::min(step_rows_, queries_);
  const Tensor picks(step_picks_.data(), DType::kI32, {count}), kept = layer_queries(layer);
  const int64_t at = (step_begin_ + step_rows_ - count) % queries_, until_end = std::min(count, queries_ - at);
  backend.gather_rows(args.q, picks.slice(0, until_end), kept.slice(at, at + until_end));
  if (until_end < count) backend.gather_rows(args.q, picks.slice(until_end, count), kept.slice(0, count - until_end));
}

void QueryWindow::finish() {
  GODWIT_CHECK(step_begin_ == end_, "the window ends at {}, the step began at {}", end_, step_begin_);
  end_ += step_rows_;
  first_ = std::max(first_, end_ - queries_);
  written_ = std::max(written_, std::min(end_, queries_));
}

std::vector<int32_t> QueryWindow::positions() const {
  std::vector<int32_t> list(static_cast<size_t>(end_ - first_));
  std::iota(list.begin(), list.end(), first_);
  return list;
}

Result<std::vector<KvSlotStats>> QueryWindow::look(const KvSequence& sequence, int layer, float use_factor) {
  const KvPool& pool = sequence.pool();
  Backend& backend = pool.backend();
  const int heads = sequence.shape().kv_heads;
  AttentionPlan plan;
  for (int head = 0; head < heads; ++head) {
    AttentionTile tile{.row_begin = 0, .row_end = written_, .kv_head = head};
    tile.page_begin = static_cast<uint32_t>(plan.pages.size());
    sequence.list_pages(layer, head, 0, sequence.pages(layer, head), plan.pages);
    tile.page_end = static_cast<uint32_t>(plan.pages.size());
    plan.tiles.push_back(tile);
  }
  std::vector<int32_t> row_positions(static_cast<size_t>(written_), -1);  // which sees nothing
  for (int32_t p = first_; p < end_; ++p) row_positions[static_cast<size_t>(p % queries_)] = p;
  const size_t numbers = static_cast<size_t>(written_) * static_cast<size_t>(q_heads_);
  GODWIT_TRY(ensure_bytes(backend, positions_, static_cast<size_t>(queries_) * sizeof(int32_t)));
  GODWIT_TRY(ensure_bytes(backend, partial_, numbers * static_cast<size_t>(head_dim_ + 1) * sizeof(float)));
  backend.upload(positions_.data(), std::as_bytes(std::span(row_positions)));

  const LayerAttention& settings = attention_[static_cast<size_t>(layer)];
  AttentionArgs args;
  args.format = pool.format(layer);
  args.slab = pool.slab(layer);
  args.open_slab = pool.open_slab();
  args.aux = pool.aux_slab();
  args.plan = &plan;
  args.q = layer_queries(layer).slice(0, written_);
  args.positions = Tensor(positions_.data(), DType::kI32, {written_});
  args.kv_heads = heads;
  args.scale = settings.scale;
  args.softcap = settings.softcap;
  args.window = settings.window;
  args.partial.out = Tensor(partial_.data(), DType::kF32, {written_, q_heads_, head_dim_});
  args.partial.lse = Tensor(partial_.data() + args.partial.out.bytes(), DType::kF32, {written_, q_heads_});
  backend.attention(args);
  GODWIT_ASSIGN(KvSlotStats all,
                observe_plan(backend, args, {.square = true, .uses = true, .use_factor = use_factor}, scratch_));

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
}

}  // namespace godwit
