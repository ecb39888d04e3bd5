// Gemma 3 (the text model): Gemma 2's block with normalised heads instead of soft caps; five sliding layers with a RoPE
// of their own to each full one.
#include <cmath>

#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};

constexpr TensorNames kNames[] = {
    {"blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight"},
    {"blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"},
};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.head_dim = 256;
  config.vocab_size = 262208;
  config.heads = 8;
  config.kv_heads = 4;
  config.context_length = 131072;
  config.norm_eps = 1e-6F;
  GODWIT_TRY(configure_decoder(reader, config));
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.dim));
  config.post_norms = true;
  config.qk_norm = true;
  config.norm_plus_one = !reader.is_gguf();
  GODWIT_TRY(reader.read("attn_logit_softcapping", "attn_logit_softcapping", config.attention_softcap));
  GODWIT_TRY(reader.read("final_logit_softcapping", "final_logit_softcapping", config.logit_softcap));
  // As in Gemma 2: GGUF files leave the query scale to the number of layers.
  double scalar = config.layers.size() == 62 ? static_cast<double>(config.dim) / config.heads : config.head_dim;
  if (!reader.is_gguf()) {
    scalar = 256;
    GODWIT_TRY(reader.read("query_pre_attn_scalar", "", scalar));
  }
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  GODWIT_TRY(reader.read("", "attention.scale", config.attention_scale));

  int period = 6;
  GODWIT_TRY(reader.read("sliding_window_pattern", "", period));
  if (period < 1) return errorf(ErrorCode::kBadData, "{}: sliding_window_pattern is {}", reader.label(), period);
  GODWIT_TRY(configure_windows(reader, config, [=](int layer) { return (layer + 1) % period != 0; }));

  config.ropes.clear();
  GODWIT_ASSIGN(RopeConfig full, reader.rope(1e6, "full_attention"));
  GODWIT_ASSIGN(RopeConfig sliding, reader.rope(1e4, "sliding_attention"));
  config.ropes = {std::move(full), std::move(sliding)};
  for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? 1 : 0;
  return {};
}

}  // namespace

extern const ModelFamily model_family_gemma3;
const ModelFamily model_family_gemma3 = {"gemma3", "Gemma 3 (text)", kArchitectures, "gemma3", true, configure, kNames};

}  // namespace godwit
