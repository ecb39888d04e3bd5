#include "engine/shapes.h"

#include <algorithm>
#include <cmath>

namespace godwit {
namespace {

// One line of a model card.
struct Row {
  std::string_view name, family;
  int layers;
  int64_t dim, ffn;
  int heads, kv_heads, head_dim;
  int64_t vocab, context;
  bool tied;
  double theta;
  float eps;
  double llama3_factor = 0;  // of the RoPE scaling that Llama 3.1 introduced; 0: none
  int experts = 0, experts_per_token = 0;
};

constexpr Row kRows[] = {
    {"llama-tiny", "llama", 2, 256, 512, 4, 2, 64, 1024, 4096, true, 1e4, 1e-5F},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5, 1e-5F, 32},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 5e5, 1e-5F, 32},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 5e5, 1e-5F, 8},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, false, 5e5, 1e-5F, 8},
    {"llama-3.1-405b", "llama", 126, 16384, 53248, 128, 8, 128, 128256, 131072, false, 5e5, 1e-5F, 8},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1e6, 1e-6F},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, false, 1e6, 1e-6F},
    {"qwen2.5-72b", "qwen2", 80, 8192, 29568, 64, 8, 128, 152064, 131072, false, 1e6, 1e-6F},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1e6, 1e-6F},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, 1e6, 1e-6F},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, false, 1e6, 1e-6F},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 768, 32, 4, 128, 151936, 40960, false, 1e6, 1e-6F, 0, 128, 8},
    // A sixteenth of its layers: 2.0 B parameters, of which a token uses 0.3 B.
    {"qwen3-moe-small", "qwen3_moe", 3, 2048, 768, 32, 4, 128, 32000, 40960, false, 1e6, 1e-6F, 0, 128, 8},
    {"mistral-7b", "mistral", 32, 4096, 14336, 32, 8, 128, 32768, 32768, false, 1e6, 1e-5F},
    {"gemma-2-2b", "gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, true, 1e4, 1e-6F},
    {"mixtral-8x7b", "mixtral", 32, 4096, 14336, 32, 8, 128, 32000, 32768, false, 1e6, 1e-5F, 0, 8, 2},
    // Mixtral 8x7B at a quarter of its width and half of its depth: 1.5 B parameters, of which a token uses 0.5 B.
    {"mixtral-small", "mixtral", 16, 1024, 3584, 8, 2, 128, 32000, 32768, false, 1e6, 1e-5F, 0, 8, 2},
};

ModelConfig config_of(const Row& row) {
  ModelConfig c;
  c.family = row.family;
  c.vocab_size = row.vocab;
  c.dim = row.dim;
  c.ffn_dim = row.ffn;
  c.heads = row.heads;
  c.kv_heads = row.kv_heads;
  c.head_dim = c.rotary_dim = row.head_dim;
  c.context_length = row.context;
  c.norm_eps = row.eps;
  c.experts = row.experts;
  c.experts_per_token = row.experts_per_token;
  c.expert_ffn_dim = row.experts > 0 ? row.ffn : 0;
  RopeConfig rope;
  rope.theta = row.theta;
  if (row.llama3_factor > 0) {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.factor = row.llama3_factor;
    rope.original_context = 8192;
  }
  c.ropes = {rope};
  c.layers.assign(static_cast<size_t>(row.layers), {});
  for (LayerConfig& layer : c.layers) layer.experts = row.experts > 0;
  c.qk_norm = row.family == "qwen3" || row.family == "qwen3_moe";
  if (row.family == "gemma2") {
    c.post_norms = true;
    c.activation = Activation::kGeluTanh;
    c.embedding_scale = std::sqrt(static_cast<float>(row.dim));
    c.attention_scale = 1 / std::sqrt(static_cast<float>(row.head_dim));
    c.attention_softcap = 50;
    c.logit_softcap = 30;
    for (size_t i = 0; i < c.layers.size(); i += 2) c.layers[i].window = 4096;
  }
  return c;
}

void add_layer(const ModelConfig& c, const LayerConfig& layer, bool qkv_bias, const std::string& blk,
               std::vector<ShapeTensor>& out) {
  auto add = [&](const char* name, std::vector<int64_t> shape) { out.push_back({blk + name, std::move(shape)}); };
  add("attn_norm.weight", {c.dim});
  add("attn_q.weight", {c.q_dim(), c.dim});
  add("attn_k.weight", {c.kv_dim(), c.dim});
  add("attn_v.weight", {c.kv_dim(), c.dim});
  if (qkv_bias) {
    add("attn_q.bias", {c.q_dim()});
    add("attn_k.bias", {c.kv_dim()});
    add("attn_v.bias", {c.kv_dim()});
  }
  if (c.qk_norm) {
    add("attn_q_norm.weight", {c.head_dim});
    add("attn_k_norm.weight", {c.head_dim});
  }
  add("attn_output.weight", {c.dim, c.q_dim()});
  if (c.post_norms) add("post_attention_norm.weight", {c.dim});
  add("ffn_norm.weight", {c.dim});
  if (layer.experts) {
    add("ffn_gate_inp.weight", {c.experts, c.dim});
    add("ffn_gate_exps.weight", {c.experts, c.expert_ffn_dim, c.dim});
    add("ffn_up_exps.weight", {c.experts, c.expert_ffn_dim, c.dim});
    add("ffn_down_exps.weight", {c.experts, c.dim, c.expert_ffn_dim});
  } else {
    add("ffn_gate.weight", {c.ffn_dim, c.dim});
    add("ffn_up.weight", {c.ffn_dim, c.dim});
    add("ffn_down.weight", {c.dim, c.ffn_dim});
  }
  if (c.post_norms) add("post_ffw_norm.weight", {c.dim});
}

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

Result<ModelShape> find_shape(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    const auto families = all_model_families();
    const auto family = std::find_if(families.begin(), families.end(), [&](auto* f) { return f->name == row.family; });
    GODWIT_CHECK(family != families.end());
    return ModelShape{std::string(row.name), config_of(row), *family, row.tied, row.family == "qwen2"};
  }
  return errorf(ErrorCode::kInvalidArgument, "there is no shape '{}'; there are {}", name,
                fmt::join(shape_names(), ", "));
}

std::vector<ShapeTensor> shape_tensors(const ModelShape& shape) {
  const ModelConfig& c = shape.config;
  std::vector<ShapeTensor> tensors = {{"token_embd.weight", {c.vocab_size, c.dim}}, {"output_norm.weight", {c.dim}}};
  if (!shape.tied) tensors.push_back({"output.weight", {c.vocab_size, c.dim}});
  for (size_t i = 0; i < c.layers.size(); ++i)
    add_layer(c, c.layers[i], shape.qkv_bias, fmt::format("blk.{}.", i), tensors);
  return tensors;
}

uint64_t shape_parameters(const ModelShape& shape) {
  uint64_t total = 0;
  for (const ShapeTensor& tensor : shape_tensors(shape)) {
    uint64_t numbers = 1;
    for (int64_t n : tensor.shape) numbers *= static_cast<uint64_t>(n);
    total += numbers;
  }
  return total;
}

}  // namespace godwit
