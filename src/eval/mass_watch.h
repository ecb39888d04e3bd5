// Adds up what the queries of a session attend to while it watches (SessionProbe::watch).
#pragma once

#include "engine/probe.h"
#include "kv/attention_totals.h"

namespace godwit {

class MassWatch final : public AttentionObserver {
 public:
  explicit MassWatch(const KvSequence& cache) : cache_(cache), totals_(cache.shape(), 0) {}
  void attended(int layer, const AttentionArgs& args) override { totals_.attended(cache_, layer, args); }
  const AttentionTotals& totals() const { return totals_; }

 private:
  const KvSequence& cache_;
  AttentionTotals totals_;
};

}  // namespace godwit
