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

void AttentionTotals::attended(const KvSequence& sequence, int layer, const AttentionArgs& args) {
  const bool recurrence = use_factor_ > 0;
  auto step =
      observe_plan(sequence.pool().backend(), args, {.recurrence = recurrence, .use_factor = use_factor_}, scratch_);
  if (!step) {
    status_ = tl::unexpected(std::move(step).error());
    return;
  }
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
        total.mass[to] += step->mass[from];
        if (!recurrence || step->first_use[from] < 0) continue;
        int32_t gap = step->longest_gap[from];
        if (total.last_use[to] >= 0) gap = std::max(gap, step->first_use[from] - total.last_use[to]);
        total.longest_gap[to] = std::max(total.longest_gap[to], gap);
        total.last_use[to] = step->last_use[from];
      }
    }
  }
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
