// What a model's operators compute and read, on one device of a tensor-parallel group: the analytic half of the
// planner.
//
// Counted exactly from the shape: 2 FLOP per weight and row; 4 FLOP per head dimension and visible pair of query head
// and key; weights read once per step (experts as far as the rows can choose them), K and V once per step; elementwise
// operators by the bytes a fused kernel moves. Tensor parallelism divides query heads, feed-forward columns, experts'
// columns and the vocabulary; KV heads are divided as far as there are any and then repeated; norms, routers and biases
// are repeated.
#pragma once

#include <string>
#include <vector>

#include "engine/shapes.h"
#include "model/source.h"
#include "plan/hardware.h"

namespace godwit::plan {

struct Weights {
  double elements = 0, bytes = 0;
};

struct LayerWeights {
  Weights query_output, key_value, ffn, experts, repeated;
};

struct PlanModel {
  std::string name;
  ModelConfig config;
  std::vector<LayerWeights> layers;
  Weights embedding, output;  // output: of the embedding where the two are one
  bool tied = false;
  double parameters = 0, weight_bytes = 0;
};

// From a file's tensors, with the bytes they have there.
Result<PlanModel> plan_model(const ModelSource& source);
// From a public shape, with so many bits per weight of attention and vocabulary, and of feed-forward and experts.
PlanModel plan_model(const ModelShape& shape, double bits, double ffn_bits);

// Refuses a degree that does not divide the heads, with the degrees that do.
Status check_tensor_degree(const PlanModel& model, int tp);

enum class OpKind { kMatmul, kAttention, kElementwise };

struct OpCost {
  std::string_view name;
  OpKind kind = OpKind::kMatmul;
  double flops = 0, bytes = 0;
};

// The roofline: what takes longer, computing or reading.
double op_seconds(const OpCost& op, const Device& device);
double ops_seconds(const std::vector<OpCost>& ops, const Device& device);

// Counts of one device among `tp`. All are nothing for no rows.
class LayerOps {
 public:
  LayerOps(const PlanModel& model, size_t layer, int tp, double kv_slot_bytes, const Device& device);

  std::vector<OpCost> before_attention(double rows) const;
  // `pairs` of new and visible tokens; `kv_tokens` that are read.
  OpCost attention(double pairs, double kv_tokens) const;
  std::vector<OpCost> after_attention(double rows) const;
  // Of `parts` partial outputs at once.
  OpCost merge(double rows, double parts) const;

  double kv_message_bytes(double tokens) const { return tokens * kv_heads_ * kv_slot_bytes_; }
  double q_message_bytes(double rows) const { return rows * q_dim_ * activation_bytes_; }
  double partial_message_bytes(double rows) const;  // output and LSE
  double all_reduce_bytes(double rows) const { return rows * dim_ * activation_bytes_; }
  int all_reduces() const { return 2; }

 private:
  const LayerWeights* weights_;
  double tp_, dim_, q_dim_, kv_heads_, head_dim_, ffn_dim_, kv_repeats_;
  double experts_, experts_per_token_;
  bool has_experts_, post_norms_;
  double kv_slot_bytes_, activation_bytes_, partial_bytes_;
};

OpCost logits_op(const PlanModel& model, int tp, double rows);

struct MemoryUse {
  double weights = 0, kv = 0, ring = 0, activations = 0;
  double total() const { return weights + kv + ring + activations; }
};
// Of one device: its share of the weights; `kv_tokens` that its rank holds; two buffers of the longest message;
// activations of `rows` at once.
MemoryUse memory_use(const PlanModel& model, int tp, double kv_slot_bytes, const Device& device, double kv_tokens,
                     double message_bytes, double rows);

}  // namespace godwit::plan
