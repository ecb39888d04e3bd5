// What every query of a sequence attended to when it was computed, added up slot by slot. What a query added cannot be
// taken out again. One thread at a time, as the sequence.
#pragma once

#include "kv/slot_stats.h"

namespace godwit {

class AttentionTotals {
 public:
  // use_factor 0: uses are not looked at.
  AttentionTotals(const KvShape& shape, float use_factor);

  void attended(const KvSequence& sequence, int layer, const AttentionArgs& args);
  Status status() const { return status_; }  // an error once the back-end had no memory to observe

  // Mass and, with a use_factor, last_use and longest_gap of each slot.
  const KvSlotStats& of(int layer, int head) const { return totals_[index(layer, head)]; }

  // The slots of a head are now those, in that order.
  void retain(int layer, int head, std::span<const uint32_t> kept);
  void clear();
  size_t bytes() const;

 private:
  size_t index(int layer, int head) const { return static_cast<size_t>(layer * shape_.kv_heads + head); }

  KvShape shape_;
  float use_factor_;
  Status status_;
  std::vector<KvSlotStats> totals_;  // [layers, kv_heads]
  Buffer scratch_;
};

}  // namespace godwit
