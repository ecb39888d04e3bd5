// The work of each rank in one step of a prefill or a decode: between the counts of model.h and the events of
// ring_sim.h.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "plan/ring_sim.h"
#include "plan/shards.h"

namespace godwit::plan {

// New tokens of one step, on all ranks.
int64_t chunk_of(const PlanRequest& request);

// What does not change from step to step. The request must outlive it.
class Cluster {
 public:
  Cluster(const PlanRequest& request, double kv_slot_bytes);

  const PlanRequest& request() const { return *request_; }
  size_t ranks() const { return static_cast<size_t>(request_->cp); }
  // Layers of equal weights and window are of one kind.
  size_t kinds() const { return kind_layers_.size(); }
  size_t kind_of(size_t layer) const { return kind_of_[layer]; }
  int64_t window(size_t kind) const;
  const LayerOps& ops(size_t kind) const { return ops_[kind]; }
  double layers(size_t kind) const { return kind_layers_[kind]; }

  std::vector<double> cached_by_rank() const;   // before the prefill
  std::vector<double> context_by_rank() const;  // after it
  double all_reduce_s(double bytes) const;      // in a rank

 private:
  const PlanRequest* request_;
  std::vector<size_t> kind_of_, first_of_kind_;
  std::vector<double> kind_layers_;
  std::vector<LayerOps> ops_;
};

class PrefillStep {
 public:
  // `tokens` after `done` of the new ones; `cached` is what each rank holds by then.
  PrefillStep(const Cluster& cluster, int64_t done, int64_t tokens, const std::vector<double>& cached);

  const RingLayer& layer(size_t kind) const { return layers_[kind]; }
  dist::RingMode quickest_mode() const;
  double rows(size_t rank) const { return static_cast<double>(tokens_of(shards_[rank])); }
  double most_rows() const { return rows(busiest_); }
  size_t last_token_rank() const;
  double all_reduce_s() const;  // of all layers, on the busiest rank
  double longest_message(dist::RingMode mode) const;
  std::vector<OpTime> ops(size_t kind, dist::RingMode mode) const;  // of one layer, on the busiest rank

 private:
  OpCost attention(size_t kind, size_t query_rank, size_t kv_rank) const;

  const Cluster* cluster_;
  std::vector<std::vector<TokenRange>> shards_;
  std::vector<double> cached_;
  double cached_tokens_ = 0;
  size_t busiest_ = 0;
  std::vector<RingLayer> layers_;  // by kind
};

class DecodeStep {
 public:
  // Sequence b's token is owned by rank (b + token) mod N.
  DecodeStep(const Cluster& cluster, size_t token, const std::vector<double>& context);

  const RingLayer& layer(size_t kind) const { return layers_[kind]; }
  double rows(size_t rank) const { return rows_[rank]; }
  size_t busiest() const { return busiest_; }
  double most_rows() const { return rows_[busiest_]; }
  double all_reduce_s() const;
  std::vector<OpTime> ops(size_t kind) const;

 private:
  OpCost attention(size_t kind, size_t rank) const;

  const Cluster* cluster_;
  std::vector<double> rows_, context_;
  size_t busiest_ = 0;
  std::vector<RingLayer> layers_;
};

}  // namespace godwit::plan
