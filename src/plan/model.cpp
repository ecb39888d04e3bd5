#include "plan/model.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

namespace godwit::plan {
namespace {

// Where a tensor's numbers count. Names are GGUF's.
void count(PlanModel& model, std::string_view name, double elements, double bytes) {
  model.parameters += elements;
  model.weight_bytes += bytes;
  auto add = [&](Weights& to, double share = 1) { to.elements += elements * share, to.bytes += bytes * share; };
  if (name == "token_embd.weight") return add(model.embedding);
  if (name == "output.weight") return add(model.output);
  if (name.substr(0, 4) != "blk.") return;  // the last norm, RoPE's factors: next to nothing
  size_t layer = 0;
  std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  if (layer >= model.layers.size()) return;
  LayerWeights& to = model.layers[layer];
  const std::string_view part = name.substr(std::min(name.find('.', 4), name.size() - 1) + 1);
  auto is = [&](std::string_view begin) { return part.substr(0, begin.size()) == begin; };
  if (part.find("norm") != std::string_view::npos || part.find(".bias") != std::string_view::npos || is("ffn_gate_inp"))
    return add(to.repeated);
  if (is("attn_qkv")) {
    const auto q = static_cast<double>(model.config.q_dim()), kv = 2 * static_cast<double>(model.config.kv_dim());
    add(to.query_output, q / (q + kv));
    return add(to.key_value, kv / (q + kv));
  }
  if (is("attn_k") || is("attn_v")) return add(to.key_value);
  if (is("attn_")) return add(to.query_output);
  if (part.find("_exps.") != std::string_view::npos) return add(to.experts);
  add(to.ffn);
}

PlanModel empty_model(std::string name, const ModelConfig& config) {
  PlanModel model;
  model.name = std::move(name);
  model.config = config;
  model.layers.resize(config.layers.size());
  return model;
}

void finish(PlanModel& model) {
  model.tied = model.output.elements == 0;
  if (model.tied) model.output = model.embedding;
}

double kv_heads_per_device(const PlanModel& model, int tp) {
  return std::max(1.0, static_cast<double>(model.config.kv_heads) / tp);
}

}  // namespace

Result<PlanModel> plan_model(const ModelSource& source) {
  PlanModel model = empty_model(source.label(), source.config());
  for (const std::string& name : source.tensor_names()) {
    GODWIT_ASSIGN(auto pieces, source.tensor(name));
    for (const TensorEntry* piece : pieces) {
      double elements = 1;
      for (int64_t n : piece->shape) elements *= static_cast<double>(n);
      count(model, name, elements, static_cast<double>(piece->bytes.size()));
    }
  }
  finish(model);
  return model;
}

PlanModel plan_model(const ModelShape& shape, double bits, double ffn_bits) {
  PlanModel model = empty_model(shape.name, shape.config);
  for (const ShapeTensor& tensor : shape_tensors(shape)) {
    double elements = 1;
    for (int64_t n : tensor.shape) elements *= static_cast<double>(n);
    const bool ffn = tensor.name.find(".ffn_") != std::string::npos && tensor.shape.size() > 1;
    count(model, tensor.name, elements, elements * (ffn ? ffn_bits : bits) / 8);
  }
  finish(model);
  return model;
}

Status check_tensor_degree(const PlanModel& model, int tp) {
  const int heads = model.config.heads, kv = model.config.kv_heads;
  auto divides = [&](int degree) { return heads % degree == 0 && (kv % degree == 0 || degree % kv == 0); };
  if (tp >= 1 && tp <= heads && divides(tp)) return {};
  std::vector<int> good;
  for (int degree = 1; degree <= heads; ++degree)
    if (divides(degree)) good.push_back(degree);
  return errorf(ErrorCode::kInvalidArgument,
                "tensor parallelism of {} does not divide {} heads over {} KV heads; {} do", tp, heads, kv,
                fmt::join(good, ", "));
}

double op_seconds(const OpCost& op, const Device& device) {
  switch (op.kind) {
    case OpKind::kMatmul:
      return std::max(op.flops / device.matmul_flops, op.bytes / device.weight_bytes_per_s);
    case OpKind::kAttention:
      return std::max(op.flops / device.attention_flops, op.bytes / device.kv_bytes_per_s);
    case OpKind::kElementwise:
      return op.bytes / device.elementwise_bytes_per_s;
  }
  return 0;
}

double ops_seconds(const std::vector<OpCost>& ops, const Device& device) {
  double sum = 0;
  for (const OpCost& op : ops) sum += op_seconds(op, device);
  return sum;
}

LayerOps::LayerOps(const PlanModel& model, size_t layer, int tp, double kv_slot_bytes, const Device& device)
    : weights_(&model.layers[layer]),
      tp_(tp),
      dim_(static_cast<double>(model.config.dim)),
      q_dim_(static_cast<double>(model.config.q_dim()) / tp),
      kv_heads_(kv_heads_per_device(model, tp)),
      head_dim_(model.config.head_dim),
      has_experts_(model.config.layers[layer].experts),
      post_norms_(model.config.post_norms),
      kv_slot_bytes_(kv_slot_bytes),
      activation_bytes_(device.activation_bytes),
      partial_bytes_(device.partial_bytes) {
  kv_repeats_ = kv_heads_ * tp / model.config.kv_heads;
  experts_ = std::max(1, model.config.experts);
  experts_per_token_ = model.config.experts_per_token;
  ffn_dim_ = static_cast<double>(has_experts_ ? model.config.expert_ffn_dim * model.config.experts_per_token
                                              : model.config.ffn_dim) /
             tp;
}

std::vector<OpCost> LayerOps::before_attention(double rows) const {
  if (rows <= 0) return {};
  const Weights &q = weights_->query_output, &kv = weights_->key_value;
  // Of query_output, the output projection is one half: it has the shape of the other, transposed.
  const double elements = q.elements / 2 / tp_ + kv.elements * kv_repeats_ / tp_;
  const double bytes = q.bytes / 2 / tp_ + kv.bytes * kv_repeats_ / tp_;
  // A norm with the residual before it: two reads, two writes. RoPE: a read and a write; K and V go to their pages.
  const double rotated = q_dim_ + kv_heads_ * head_dim_;
  return {{"norms", OpKind::kElementwise, 0, 4 * rows * dim_ * activation_bytes_ + weights_->repeated.bytes / 2},
          {"QKV projection", OpKind::kMatmul, 2 * rows * elements, bytes},
          {"RoPE, KV write", OpKind::kElementwise, 0,
           2 * rows * rotated * activation_bytes_ + rows * kv_heads_ * kv_slot_bytes_}};
}

OpCost LayerOps::attention(double pairs, double kv_tokens) const {
  if (pairs <= 0) return {"attention", OpKind::kAttention, 0, 0};
  return {"attention", OpKind::kAttention, 4 * pairs * q_dim_, kv_tokens * kv_heads_ * kv_slot_bytes_};
}

std::vector<OpCost> LayerOps::after_attention(double rows) const {
  if (rows <= 0) return {};
  const Weights &o = weights_->query_output, &f = weights_->ffn, &x = weights_->experts;
  std::vector<OpCost> ops = {{"output projection", OpKind::kMatmul, 2 * rows * o.elements / 2 / tp_, o.bytes / 2 / tp_},
                             {"norms", OpKind::kElementwise, 0,
                              (post_norms_ ? 8 : 4) * rows * dim_ * activation_bytes_ + weights_->repeated.bytes / 2}};
  if (has_experts_) {
    const double touched = std::min(1.0, rows * experts_per_token_ / experts_);
    ops.push_back({"experts", OpKind::kMatmul, 2 * rows * x.elements * experts_per_token_ / experts_ / tp_,
                   touched * x.bytes / tp_});
  }
  if (f.elements > 0) ops.push_back({"feed-forward", OpKind::kMatmul, 2 * rows * f.elements / tp_, f.bytes / tp_});
  ops.push_back({"activation", OpKind::kElementwise, 0, 3 * rows * ffn_dim_ * activation_bytes_});
  return ops;
}

OpCost LayerOps::merge(double rows, double parts) const {
  return {"merge", OpKind::kElementwise, 0, (parts + 1) * rows * q_dim_ * sizeof(float)};
}

double LayerOps::partial_message_bytes(double rows) const {
  return rows * (q_dim_ * partial_bytes_ + q_dim_ / head_dim_ * sizeof(float));
}

OpCost logits_op(const PlanModel& model, int tp, double rows) {
  return {"logits", OpKind::kMatmul, 2 * rows * model.output.elements / tp, rows > 0 ? model.output.bytes / tp : 0};
}

MemoryUse memory_use(const PlanModel& model, int tp, double kv_slot_bytes, const Device& device, double kv_tokens,
                     double message_bytes, double rows) {
  MemoryUse use;
  const double kv_heads = kv_heads_per_device(model, tp);
  const double kv_repeats = kv_heads * tp / model.config.kv_heads;
  use.weights = (model.embedding.bytes + (model.tied ? 0 : model.output.bytes)) / tp;
  for (const LayerWeights& w : model.layers)
    use.weights +=
        (w.query_output.bytes + w.key_value.bytes * kv_repeats + w.ffn.bytes + w.experts.bytes) / tp + w.repeated.bytes;
  const double layer_kv = kv_heads * kv_slot_bytes;
  use.kv = kv_tokens * layer_kv * static_cast<double>(model.layers.size());
  use.ring = 2 * message_bytes;
  const auto& c = model.config;
  const double widest =
      std::max(static_cast<double>(c.ffn_dim), static_cast<double>(c.expert_ffn_dim) * c.experts_per_token);
  // Residual, normed and block output; queries and attention's output; gate and up; two fp32 partial outputs.
  use.activations = rows * (device.activation_bytes * (3 * static_cast<double>(c.dim) +
                                                       (2 * static_cast<double>(c.q_dim()) + 2 * widest) / tp) +
                            2 * sizeof(float) * static_cast<double>(c.q_dim()) / tp);
  return use;
}

}  // namespace godwit::plan
