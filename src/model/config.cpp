#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace godwit {
namespace {

struct Range {
  const char* name;
  int64_t value, low, high;
};

bool all_positive(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return v > 0 && std::isfinite(v); });
}

Status validate_rope(const RopeConfig& rope, size_t frequencies, const std::string& label) {
  using Scaling = RopeConfig::Scaling;
  if (!(rope.theta > 0 && rope.theta <= 1e30) || !(rope.factor > 0 && rope.factor <= 1e9))
    return errorf(ErrorCode::kBadData, "{}: RoPE base {} or factor {} is not positive or absurd", label, rope.theta,
                  rope.factor);
  if (!(rope.attention_factor >= 0 && rope.attention_factor <= 1e9))
    return errorf(ErrorCode::kBadData, "{}: a RoPE attention factor of {} makes no sense", label,
                  rope.attention_factor);
  const bool scaled = rope.scaling != Scaling::kNone && rope.scaling != Scaling::kLinear;
  if (scaled && rope.original_context <= 0)
    return errorf(ErrorCode::kBadData, "{}: the RoPE scaling does not say the original context length", label);
  if (rope.scaling == Scaling::kYarn) {
    // The ramp's ends are logarithms of these, to the base theta.
    if (!(rope.theta > 1) || !(rope.beta_slow > 0 && rope.beta_slow <= rope.beta_fast && rope.beta_fast <= 1e9))
      return errorf(ErrorCode::kBadData, "{}: YaRN with base {}, beta_fast {} and beta_slow {} makes no sense", label,
                    rope.theta, rope.beta_fast, rope.beta_slow);
    if (!(std::abs(rope.mscale) <= 1e9 && std::abs(rope.mscale_all_dim) <= 1e9))
      return errorf(ErrorCode::kBadData, "{}: YaRN with mscale {} and mscale_all_dim {} makes no sense", label,
                    rope.mscale, rope.mscale_all_dim);
  }
  if (rope.scaling == Scaling::kLlama3 &&
      !(rope.low_freq_factor > 0 && rope.low_freq_factor < rope.high_freq_factor && rope.high_freq_factor <= 1e9))
    return errorf(ErrorCode::kBadData, "{}: llama3 RoPE with low_freq_factor {} and high_freq_factor {} makes no sense",
                  label, rope.low_freq_factor, rope.high_freq_factor);
  if (rope.scaling == Scaling::kLongRope) {
    if (rope.long_factors.size() != frequencies || rope.short_factors.size() != frequencies)
      return errorf(ErrorCode::kBadData, "{}: longrope needs {} long and short factors, but has {} and {}", label,
                    frequencies, rope.long_factors.size(), rope.short_factors.size());
    if (!all_positive(rope.long_factors) || !all_positive(rope.short_factors))
      return errorf(ErrorCode::kBadData, "{}: a longrope factor is not positive", label);
    // The magnitude divides by the logarithm of the length.
    if (rope.original_context < 2)
      return errorf(ErrorCode::kBadData, "{}: longrope from {} tokens makes no sense", label, rope.original_context);
  }
  if (!rope.divisors.empty() && rope.divisors.size() != frequencies)
    return errorf(ErrorCode::kBadData, "{}: {} RoPE divisors for {} frequencies", label, rope.divisors.size(),
                  frequencies);
  if (!all_positive(rope.divisors)) return errorf(ErrorCode::kBadData, "{}: a RoPE divisor is not positive", label);
  return {};
}

}  // namespace

Status validate(const ModelConfig& c, const std::string& label) {
  const Range ranges[] = {
      {"number of layers", static_cast<int64_t>(c.layers.size()), 1, 4096},
      {"vocabulary size", c.vocab_size, 1, 1 << 24},
      {"embedding size", c.dim, 1, 1 << 20},
      {"feed-forward size", c.ffn_dim, c.experts > 0 ? 0 : 1, 1 << 22},
      {"number of heads", c.heads, 1, 4096},
      {"number of KV heads", c.kv_heads, 1, 4096},
      {"head size", c.head_dim, 8, 1024},
      {"rotary size", c.rotary_dim, 2, c.head_dim},
      {"context length", c.context_length, 1, int64_t{1} << 30},
      {"number of experts", c.experts, 0, 4096},
      {"experts per token", c.experts_per_token, c.experts > 0 ? 1 : 0, c.experts},
      {"expert feed-forward size", c.expert_ffn_dim, c.experts > 0 ? 1 : 0, 1 << 22},
  };
  for (const Range& r : ranges)
    if (r.value < r.low || r.value > r.high)
      return errorf(ErrorCode::kBadData, "{}: the {} is {}, which is not in {} to {}", label, r.name, r.value, r.low,
                    r.high);
  if (c.heads % c.kv_heads != 0)
    return errorf(ErrorCode::kBadData, "{}: {} heads cannot share {} KV heads evenly", label, c.heads, c.kv_heads);
  if (c.head_dim % 8 != 0)
    return errorf(ErrorCode::kUnsupported, "{}: head size {} is not a multiple of 8", label, c.head_dim);
  if (c.rotary_dim % 2 != 0) return errorf(ErrorCode::kBadData, "{}: the rotary size {} is odd", label, c.rotary_dim);
  if (!(c.norm_eps >= 0 && c.norm_eps < 1))
    return errorf(ErrorCode::kBadData, "{}: a norm epsilon of {} makes no sense", label, c.norm_eps);
  for (auto [name, value] : {std::pair{"attention scale", c.attention_scale},
                             {"attention soft cap", c.attention_softcap},
                             {"logit soft cap", c.logit_softcap},
                             {"embedding scale", c.embedding_scale}})
    if (!(value >= 0 && std::isfinite(value)))
      return errorf(ErrorCode::kBadData, "{}: the {} is {}, which makes no sense", label, name, value);
  for (const RopeConfig& rope : c.ropes) GODWIT_TRY(validate_rope(rope, static_cast<size_t>(c.rotary_dim / 2), label));
  for (const LayerConfig& layer : c.layers)
    if (layer.window < 0 || layer.rope < 0 || static_cast<size_t>(layer.rope) >= c.ropes.size())
      return errorf(ErrorCode::kBadData, "{}: a layer has window {} and rope {}", label, layer.window, layer.rope);
  const bool any_experts =
      std::any_of(c.layers.begin(), c.layers.end(), [](const LayerConfig& l) { return l.experts; });
  if (any_experts && c.experts == 0)
    return errorf(ErrorCode::kBadData, "{}: a layer has a mixture of experts, but the number of experts is 0", label);
  return {};
}

}  // namespace godwit
