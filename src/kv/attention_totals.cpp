#include "kv/attention_totals.h"

#include <algorithm>

namespace godwit {
namespace {

template <class T>
void keep(std::vector<T>& values, std::span<const uint32_t> kept) {
  if (values.empty()) return;
  std::vector<T> moved;
  for (uint32_t slot : kept) moved.push_back(values[slot]);
  values = std::move(moved);
}

}  // namespace

AttentionTotals::AttentionTotals(const KvShape& shape, float use_factor)
    : shape_(shape),
      use_factor_(use_factor),
      totals_(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.kv_heads)) {}

AttentionTotals::AttentionTotals(const AttentionTotals& other)
    : shape_(other.shape_), use_factor_(other.use_factor_), status_(other.status_), totals_(other.totals_) {}

void AttentionTotals::attended(const KvSequence& sequence, int layer, const AttentionArgs& args) {
  if (Status added = add(sequence, layer, args, {}); !added) status_ = added;
}

void AttentionTotals::attended(const KvSequence& sequence, int layer, const AttentionArgs& args,
                               std::span<const int32_t> positions, KvPeers& peers) {
  if (Status added = add_gathered(sequence, layer, args, positions, peers); !added) status_ = added;
}

Status AttentionTotals::add_gathered(const KvSequence& sequence, int layer, const AttentionArgs& args,
                                     std::span<const int32_t> positions, KvPeers& peers) {
  const KvPool& pool = sequence.pool();
  GODWIT_TRY(gathered_.gather(pool.backend(), {.positions = positions, .q = args.q, .lse = args.partial.lse}, peers));
  AttentionArgs all = args;
  gathered_.fill(all);
  all.format = pool.format(layer);
  all.slab = pool.slab(layer);
  all.open_slab = pool.open_slab();
  all.aux = pool.aux_slab();
  all.kv_heads = shape_.kv_heads;
  AttentionPlan plan;
  for (int head = 0; head < shape_.kv_heads; ++head)
    list_tile(sequence, layer, head, static_cast<int32_t>(all.q.shape[0]), plan);
  all.plan = &plan;
  Tensor seen_elsewhere;
  if (use_factor_ > 0) {
    GODWIT_ASSIGN(seen_elsewhere, gathered_.seen_elsewhere(sequence, layer, args.window, peers));
  }
  return add(sequence, layer, all, seen_elsewhere);
}

Status AttentionTotals::add(const KvSequence& sequence, int layer, const AttentionArgs& args,
                            const Tensor& seen_elsewhere) {
  const bool recurrence = use_factor_ > 0;
  const ObserveWants wants{.recurrence = recurrence, .use_factor = use_factor_, .seen_elsewhere = seen_elsewhere};
  GODWIT_ASSIGN(const KvSlotStats step, observe_plan(sequence.pool().backend(), args, wants, scratch_));
  for (int head = 0; head < shape_.kv_heads; ++head) {
    KvSlotStats& total = totals_[index(layer, head)];
    const size_t slots = sequence.slots(layer, head);
    total.mass.resize(slots, 0.0F);
    if (!recurrence) continue;
    total.last_use.resize(slots, -1);
    total.longest_gap.resize(slots, 0);
  }
  const auto page_tokens = static_cast<size_t>(args.format.page_tokens);
  for (const AttentionTile& tile : args.plan->tiles) {
    KvSlotStats& total = totals_[index(layer, tile.kv_head)];
    for (size_t page = tile.page_begin; page < tile.page_end; ++page) {
      const PageRef& ref = args.plan->pages[page];
      for (size_t i = 0; i < ref.count; ++i) {
        const size_t from = page * page_tokens + i, to = ref.ordinal * page_tokens + i;
        total.mass[to] += step.mass[from];
        if (!recurrence || step.first_use[from] < 0) continue;
        int32_t gap = step.longest_gap[from];
        if (total.last_use[to] >= 0) gap = std::max(gap, step.first_use[from] - total.last_use[to]);
        total.longest_gap[to] = std::max(total.longest_gap[to], gap);
        total.last_use[to] = step.last_use[from];
      }
    }
  }
  return {};
}

void AttentionTotals::retain(int layer, int head, std::span<const uint32_t> kept) {
  KvSlotStats& total = totals_[index(layer, head)];
  keep(total.mass, kept);
  keep(total.last_use, kept);
  keep(total.longest_gap, kept);
}

void AttentionTotals::clear() {
  for (KvSlotStats& total : totals_) total = {};
  status_ = {};
}

size_t AttentionTotals::bytes() const {
  size_t total = 0;
  for (const KvSlotStats& one : totals_)
    total += one.mass.size() * sizeof(float) + (one.last_use.size() + one.longest_gap.size()) * sizeof(int32_t);
  return total;
}

}  // namespace godwit
