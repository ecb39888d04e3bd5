#include "model/family.h"

#include <algorithm>

namespace godwit {

Result<const ModelFamily*> find_model_family(const ConfigReader& reader) {
  std::vector<std::string> known;
  for (const ModelFamily* family : all_model_families()) {
    if (reader.is_gguf()) {
      if (!family->reads_gguf) continue;
      if (family->gguf_architecture == reader.architecture()) return family;
      known.emplace_back(family->gguf_architecture);
    } else {
      for (std::string_view name : family->hf_architectures) {
        if (name == reader.architecture()) return family;
        known.emplace_back(name);
      }
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return errorf(ErrorCode::kUnsupported, "{}: the architecture '{}' is not supported; there are {}", reader.label(),
                reader.architecture(), fmt::join(known, ", "));
}

Status configure_decoder(const ConfigReader& r, ModelConfig& c) {
  int64_t layers = 0;
  GODWIT_TRY(r.require("num_hidden_layers", "block_count", layers));
  if (layers < 1 || layers > 4096)
    return errorf(ErrorCode::kBadData, "{}: {} layers are not in 1 to 4096", r.label(), layers);
  c.layers.assign(static_cast<size_t>(layers), {});
  GODWIT_TRY(r.require("hidden_size", "embedding_length", c.dim));
  GODWIT_TRY(r.read("intermediate_size", "feed_forward_length", c.ffn_dim));
  if (c.heads == 0)
    GODWIT_TRY(r.require("num_attention_heads", "attention.head_count", c.heads));
  else
    GODWIT_TRY(r.read("num_attention_heads", "attention.head_count", c.heads));
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  GODWIT_TRY(r.read("num_key_value_heads", "attention.head_count_kv", c.kv_heads));
  if (c.heads < 1) return errorf(ErrorCode::kBadData, "{}: the number of heads is {}", r.label(), c.heads);
  if (c.head_dim == 0) c.head_dim = static_cast<int>(c.dim / c.heads);
  GODWIT_TRY(r.read("head_dim", "attention.key_length", c.head_dim));
  GODWIT_TRY(r.read("max_position_embeddings", "context_length", c.context_length));
  GODWIT_TRY(r.read("rms_norm_eps", "attention.layer_norm_rms_epsilon", c.norm_eps));

  GODWIT_ASSIGN(auto activation, r.text("hidden_act", ""));
  if (activation && *activation != "silu" && *activation != "swish") {
    if (*activation != "gelu_pytorch_tanh")
      return errorf(ErrorCode::kUnsupported, "{}: the activation '{}' is not supported", r.label(), *activation);
    c.activation = Activation::kGeluTanh;
  }

  GODWIT_ASSIGN(RopeConfig rope, r.rope(10000));
  if (rope.scaling == RopeConfig::Scaling::kDynamic) {
    const double length = static_cast<double>(c.context_length) * std::max(1.0, rope.factor);
    if (!(length <= 0x1p30))
      return errorf(ErrorCode::kBadData, "{}: a RoPE factor of {} makes a context of {} tokens", r.label(), rope.factor,
                    length);
    c.context_length = static_cast<int64_t>(length);
  }
  c.ropes = {std::move(rope)};
  GODWIT_ASSIGN(double share, r.rotary_share());
  c.rotary_dim = static_cast<int>(c.head_dim * share);
  GODWIT_TRY(r.read("", "rope.dimension_count", c.rotary_dim));
  return r.read("vocab_size", "vocab_size", c.vocab_size);
}

Status configure_experts(const ConfigReader& r, ModelConfig& c) {
  GODWIT_TRY(r.read("num_local_experts", "expert_count", c.experts));
  GODWIT_TRY(r.read("num_experts", "", c.experts));
  if (c.experts == 0) return {};
  GODWIT_TRY(r.require("num_experts_per_tok", "expert_used_count", c.experts_per_token));
  c.expert_ffn_dim = c.ffn_dim;
  GODWIT_TRY(r.read("moe_intermediate_size", "expert_feed_forward_length", c.expert_ffn_dim));
  GODWIT_ASSIGN(auto normalize, r.boolean("norm_topk_prob", "expert_weights_norm"));
  c.normalize_experts = normalize.value_or(c.normalize_experts);
  for (LayerConfig& layer : c.layers) layer.experts = true;
  return {};
}

Status configure_windows(const ConfigReader& r, ModelConfig& c, const std::function<bool(int)>& is_sliding) {
  int32_t window = 0;
  GODWIT_TRY(r.read("sliding_window", "attention.sliding_window", window));
  if (window == 0) return {};
  GODWIT_ASSIGN(auto types, r.texts("layer_types"));
  if (!types.empty() && types.size() != c.layers.size())
    return errorf(ErrorCode::kBadData, "{}: layer_types lists {} layers of {}", r.label(), types.size(),
                  c.layers.size());
  for (const std::string& type : types)
    if (type != "sliding_attention" && type != "full_attention")
      return errorf(ErrorCode::kUnsupported,
                    "{}: layer_types names '{}'; sliding_attention and full_attention are supported", r.label(), type);
  GODWIT_ASSIGN(auto flags, r.numbers("", "attention.sliding_layers"));
  if (!flags.empty() && flags.size() != c.layers.size())
    return errorf(ErrorCode::kBadData, "{}: sliding_layers lists {} layers of {}", r.label(), flags.size(),
                  c.layers.size());
  for (double flag : flags) types.emplace_back(flag != 0 ? "sliding_attention" : "full_attention");
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool sliding = types.empty() ? is_sliding(static_cast<int>(i)) : types[i] == "sliding_attention";
    c.layers[i].window = sliding ? window : 0;
  }
  return {};
}

Status configure_qwen_windows(const ConfigReader& r, ModelConfig& c, QwenWindows where) {
  GODWIT_ASSIGN(auto slides, r.boolean("use_sliding_window", ""));
  if (!r.is_gguf() && !slides.value_or(false)) return {};
  int full_layers = 0;
  if (where == QwenWindows::kUpperLayers) GODWIT_TRY(r.read("max_window_layers", "", full_layers));
  return configure_windows(r, c, [=](int layer) { return layer >= full_layers; });
}

}  // namespace godwit
