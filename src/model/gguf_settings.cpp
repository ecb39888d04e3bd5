#include "model/gguf_settings.h"

#include <algorithm>

namespace godwit {
namespace {

using Scaling = RopeConfig::Scaling;

class Settings {
 public:
  Settings(GgufMetadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}

  Status size(const char* key, int64_t value) { return metadata_.set(prefix_ + key, static_cast<uint32_t>(value)); }
  Status number(const char* key, double value) { return metadata_.set(prefix_ + key, static_cast<float>(value)); }
  Status set(const char* key, GgufValue value) { return metadata_.set(prefix_ + key, std::move(value)); }

 private:
  GgufMetadata& metadata_;
  std::string prefix_;
};

Status write_rope(Settings& out, const RopeConfig& rope, const ModelConfig& config,
                  std::vector<SettingsTensor>& tensors) {
  GODWIT_TRY(out.size("rope.dimension_count", config.rotary_dim));
  GODWIT_TRY(out.number("rope.freq_base", rope.theta));
  if (!rope.divisors.empty()) tensors.push_back({"rope_freqs.weight", rope.divisors});
  switch (rope.scaling) {
    case Scaling::kNone:
      return {};
    case Scaling::kLlama3: {  // GGUF has no name for this one: it stores what each frequency is divided by
      RopeConfig plain = rope;
      plain.scaling = Scaling::kNone;
      std::vector<float> divisors = make_rope_table(plain, config, 0).inv_freq;
      const std::vector<float> scaled = make_rope_table(rope, config, 0).inv_freq;
      for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
      tensors.push_back({"rope_freqs.weight", std::move(divisors)});
      return {};
    }
    case Scaling::kLongRope:
      tensors.push_back({"rope_factors_long.weight", rope.long_factors});
      tensors.push_back({"rope_factors_short.weight", rope.short_factors});
      GODWIT_TRY(out.number("rope.scaling.attn_factor", make_rope_table(rope, config, 0).magnitude));
      break;
    case Scaling::kLinear:
      GODWIT_TRY(out.set("rope.scaling.type", std::string("linear")));
      break;
    case Scaling::kDynamic:
      GODWIT_TRY(out.set("rope.scaling.type", std::string("dynamic")));
      break;
    case Scaling::kYarn:
      GODWIT_TRY(out.set("rope.scaling.type", std::string("yarn")));
      GODWIT_TRY(out.number("rope.scaling.yarn_beta_fast", rope.beta_fast));
      GODWIT_TRY(out.number("rope.scaling.yarn_beta_slow", rope.beta_slow));
      if (rope.attention_factor > 0 || rope.mscale > 0) {  // GGUF counts from YaRN's own rule
        RopeConfig rule = rope;
        rule.attention_factor = rule.mscale = 0;
        GODWIT_TRY(out.number("rope.scaling.attn_factor",
                              make_rope_table(rope, config, 0).magnitude / make_rope_table(rule, config, 0).magnitude));
      }
      if (!rope.truncate) return errorf(ErrorCode::kUnsupported, "GGUF cannot say that a YaRN ramp is not truncated");
      break;
  }
  GODWIT_TRY(out.number("rope.scaling.factor", rope.factor));
  return out.size("rope.scaling.original_context_length", rope.original_context);
}

Status write_windows(Settings& out, const ModelConfig& config) {
  int32_t window = 0;
  std::vector<uint32_t> sliding;
  for (const LayerConfig& layer : config.layers) {
    window = std::max(window, layer.window);
    sliding.push_back(layer.window > 0 ? 1 : 0);
  }
  if (window == 0) return {};
  GODWIT_TRY(out.size("attention.sliding_window", window));
  return out.set("attention.sliding_layers", GgufArray(sliding));
}

}  // namespace

Result<std::vector<SettingsTensor>> write_settings(const ModelConfig& c, const ModelFamily& family,
                                                   GgufMetadata& metadata) {
  std::vector<SettingsTensor> tensors;
  GODWIT_TRY(metadata.set("general.architecture", std::string(family.gguf_architecture)));
  Settings out(metadata, std::string(family.gguf_architecture) + ".");
  const bool dynamic = c.ropes[0].scaling == Scaling::kDynamic;  // a reader multiplies the length by the factor again
  GODWIT_TRY(out.size("context_length", dynamic ? c.ropes[0].original_context : c.context_length));
  GODWIT_TRY(out.size("embedding_length", c.dim));
  GODWIT_TRY(out.size("block_count", static_cast<int64_t>(c.layers.size())));
  GODWIT_TRY(out.size("feed_forward_length", c.ffn_dim));
  GODWIT_TRY(out.size("attention.head_count", c.heads));
  GODWIT_TRY(out.size("attention.head_count_kv", c.kv_heads));
  GODWIT_TRY(out.size("attention.key_length", c.head_dim));
  GODWIT_TRY(out.size("attention.value_length", c.head_dim));
  GODWIT_TRY(out.number("attention.layer_norm_rms_epsilon", c.norm_eps));
  GODWIT_TRY(out.size("vocab_size", c.vocab_size));
  if (c.attention_scale > 0) GODWIT_TRY(out.number("attention.scale", c.attention_scale));
  if (c.attention_softcap > 0) GODWIT_TRY(out.number("attn_logit_softcapping", c.attention_softcap));
  if (c.logit_softcap > 0) GODWIT_TRY(out.number("final_logit_softcapping", c.logit_softcap));
  if (c.experts > 0) {
    GODWIT_TRY(out.size("expert_count", c.experts));
    GODWIT_TRY(out.size("expert_used_count", c.experts_per_token));
    GODWIT_TRY(out.size("expert_feed_forward_length", c.expert_ffn_dim));
    GODWIT_TRY(out.set("expert_weights_norm", c.normalize_experts));
  }
  GODWIT_TRY(write_windows(out, c));
  GODWIT_TRY(write_rope(out, c.ropes[0], c, tensors));
  if (c.ropes.size() > 1) {
    if (c.ropes[1].scaling != Scaling::kNone)
      return errorf(ErrorCode::kUnsupported, "GGUF cannot say a RoPE scaling of the sliding layers");
    GODWIT_TRY(out.number("rope.freq_base_swa", c.ropes[1].theta));
  }
  return tensors;
}

Status add_settings_tensors(const std::vector<SettingsTensor>& tensors, GgufWriter& writer) {
  for (const SettingsTensor& t : tensors)
    GODWIT_TRY(
        writer.add(t.name, DType::kF32, {static_cast<int64_t>(t.values.size())}, std::as_bytes(std::span(t.values))));
  return {};
}

}  // namespace godwit
