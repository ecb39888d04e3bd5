// From scores to the slots that stay: how a budget is dealt to heads, and the best of each. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "kv/budget.h"

namespace godwit {

struct ScoredHead {
  std::vector<int32_t> positions;  // of its slots, ascending
  std::vector<float> scores;
};

// Deals `total` to receivers in proportion to their demands, none more than its cap; what one cannot take goes to the
// others. Sums to min(total, sum of caps), exactly. Demands are >= 0; if all are 0 they count as equal.
std::vector<size_t> deal(size_t total, std::span<const double> demands, std::span<const size_t> caps);

struct KvSelection {
  size_t slots_per_head = 0;  // the budget, on average over heads
  size_t granule = 1;         // slots are dealt so many at a time: a page, where bytes count
  KvBudget::Split split = KvBudget::Split::kHead;
  std::span<const double> demands;  // [layers], of the budget
};

// The slots to keep of each head of `heads` [layers, kv_heads], ascending: never one scored kDropSlot, otherwise the
// best, ties to the newer. Where heads compete, each first gets a fifth of its even share (Ada-KV's safeguard, arXiv
// 2407.11550), and the rest goes to the best slots of all of them.
std::vector<std::vector<uint32_t>> select_slots(std::span<const ScoredHead> heads, const KvShape& shape,
                                                const KvSelection& selection);

// Adds to `kept` (ascending) the best of the others, so that the number of slots that are left is a multiple of `page`.
void keep_up_to_page(const ScoredHead& head, size_t page, std::vector<uint32_t>& kept);

}  // namespace godwit
