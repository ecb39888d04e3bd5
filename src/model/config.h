// What a decoder-only transformer looks like, whatever file it came from. Filled by one model family's `configure` (see
// family.h), checked once by validate(), immutable afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace godwit {

struct RopeConfig {
  enum class Scaling { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };

  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  int64_t original_context = 0;  // tokens the unscaled model was trained for
  double attention_factor = 0;   // multiplies cos and sin; 0: the scaling's own rule
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  // YaRN
  bool truncate = true;                                                  // YaRN: whole dimensions at the ramp's ends
  double low_freq_factor = 1, high_freq_factor = 4;                      // llama3
  std::vector<float> long_factors, short_factors;                        // longrope, one per frequency
  std::vector<float> divisors;  // explicit divisors of the frequencies (GGUF's rope_freqs), instead of a scaling
};

struct LayerConfig {
  int32_t window = 0;    // sliding attention window in tokens; 0: all
  int rope = 0;          // index of ModelConfig::ropes
  bool experts = false;  // mixture of experts instead of one feed-forward block
};

struct ModelConfig {
  std::string family;
  int64_t vocab_size = 0, dim = 0, ffn_dim = 0, expert_ffn_dim = 0;
  int heads = 0, kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int64_t context_length = 0;
  float norm_eps = 1e-5F;
  int experts = 0, experts_per_token = 0;
  bool normalize_experts = true;  // the chosen experts' weights sum to 1

  Activation activation = Activation::kSilu;
  float embedding_scale = 1;
  float attention_scale = 0;    // 0: 1 / sqrt(head_dim)
  float attention_softcap = 0;  // 0: none
  float logit_softcap = 0;      // 0: none
  bool qk_norm = false;         // RMSNorm of each query and key head before RoPE
  bool post_norms = false;      // RMSNorm of each block's output before the residual (Gemma)
  bool norm_plus_one = false;   // norm weights are stored minus one (Gemma in the Hugging Face layout)
  RopeStyle rope_style = RopeStyle::kHalves;

  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;

  int64_t q_dim() const { return static_cast<int64_t>(heads) * head_dim; }
  int64_t kv_dim() const { return static_cast<int64_t>(kv_heads) * head_dim; }
};

// Refuses sizes that are missing, absurd or inconsistent, naming the field.
Status validate(const ModelConfig& config, const std::string& label);

// The rotary frequencies for a session of `context_tokens` and the factor on cos and sin. Dynamic NTK and longrope
// choose by length; here the length is the session's limit and not the current one, so that cached keys never go stale.
struct RopeTable {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float magnitude = 1;
};
RopeTable make_rope_table(const RopeConfig& rope, const ModelConfig& config, int64_t context_tokens);

}  // namespace godwit
