// What every query of a sequence attended to when it was computed, added up slot by slot. What a query added cannot be
// taken out again. Of a sequence that several processes keep together, each adds up for the slots that it has, and they
// tell each other their queries. One thread at a time, as the sequence.
#pragma once

#include "kv/gathered_queries.h"

namespace godwit {

class AttentionTotals {
 public:
  // use_factor 0: uses are not looked at.
  AttentionTotals(const KvShape& shape, float use_factor);
  AttentionTotals(const AttentionTotals& other);
  AttentionTotals& operator=(const AttentionTotals&) = delete;

  void attended(const KvSequence& sequence, int layer, const AttentionArgs& args);
  // The same of rows that were computed here and in other processes: args has those of these positions, with the lse
  // over all slots, and no plan.
  void attended(const KvSequence& sequence, int layer, const AttentionArgs& args, std::span<const int32_t> positions,
                KvPeers& peers);
  Status status() const { return status_; }  // an error once the back-end had no memory to observe

  // Mass and, with a use_factor, last_use and longest_gap of each slot.
  const KvSlotStats& of(int layer, int head) const { return totals_[index(layer, head)]; }

  // The slots of a head are now those, in that order.
  void retain(int layer, int head, std::span<const uint32_t> kept);
  void clear();
  size_t bytes() const;

 private:
  Status add_gathered(const KvSequence& sequence, int layer, const AttentionArgs& args,
                      std::span<const int32_t> positions, KvPeers& peers);
  Status add(const KvSequence& sequence, int layer, const AttentionArgs& args, const Tensor& seen_elsewhere);
  size_t index(int layer, int head) const { return static_cast<size_t>(layer * shape_.kv_heads + head); }

  KvShape shape_;
  float use_factor_;
  Status status_;
  std::vector<KvSlotStats> totals_;  // [layers, kv_heads]
  GatheredQueries gathered_;
  Buffer scratch_;
};

}  // namespace godwit
