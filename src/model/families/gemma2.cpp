// Gemma 2: scaled embeddings, norms around both blocks, soft caps, every other layer slides.
#include <cmath>

#include "model/family.h"

namespace godwit {
namespace {

constexpr std::string_view kArchitectures[] = {"Gemma2ForCausalLM"};

constexpr TensorNames kNames[] = {
    {"blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    {"blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight"},
    {"blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"},
};

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.head_dim = 256;
  GODWIT_TRY(configure_decoder(reader, config));
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.dim));
  config.post_norms = true;
  config.norm_plus_one = !reader.is_gguf();
  config.attention_softcap = 50;
  config.logit_softcap = 30;
  GODWIT_TRY(reader.read("attn_logit_softcapping", "attn_logit_softcapping", config.attention_softcap));
  GODWIT_TRY(reader.read("final_logit_softcapping", "final_logit_softcapping", config.logit_softcap));
  // GGUF files do not carry the query scale: the 27B model alone (46 layers) divides by dim / heads.
  double scalar = config.layers.size() == 46 ? static_cast<double>(config.dim) / config.heads : config.head_dim;
  if (!reader.is_gguf()) GODWIT_TRY(reader.read("query_pre_attn_scalar", "", scalar));
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  GODWIT_TRY(reader.read("", "attention.scale", config.attention_scale));
  return configure_windows(reader, config, [](int layer) { return layer % 2 == 0; });
}

}  // namespace

extern const ModelFamily model_family_gemma2;
const ModelFamily model_family_gemma2 = {"gemma2", "Gemma 2", kArchitectures, "gemma2", true, configure, kNames};

}  // namespace godwit
