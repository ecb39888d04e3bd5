#include "model/config.h"

namespace godwit {
namespace {

struct Range {
  const char* name;
  int64_t value, low, high;
};

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
      {"rotary size", c.rotary_dim, 0, c.head_dim},
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
  const auto frequencies = static_cast<size_t>(c.rotary_dim / 2);
  for (const RopeConfig& rope : c.ropes) {
    if (!(rope.theta > 0) || !(rope.factor > 0))
      return errorf(ErrorCode::kBadData, "{}: RoPE base {} or factor {} is not positive", label, rope.theta,
                    rope.factor);
    const bool scaled = rope.scaling != RopeConfig::Scaling::kNone && rope.scaling != RopeConfig::Scaling::kLinear;
    if (scaled && rope.original_context <= 0)
      return errorf(ErrorCode::kBadData, "{}: the RoPE scaling does not say the original context length", label);
    if (rope.scaling == RopeConfig::Scaling::kLongRope &&
        (rope.long_factors.size() != frequencies || rope.short_factors.size() != frequencies))
      return errorf(ErrorCode::kBadData, "{}: longrope needs {} long and short factors, but has {} and {}", label,
                    frequencies, rope.long_factors.size(), rope.short_factors.size());
    if (!rope.divisors.empty() && rope.divisors.size() != frequencies)
      return errorf(ErrorCode::kBadData, "{}: {} RoPE divisors for {} frequencies", label, rope.divisors.size(),
                    frequencies);
  }
  for (const LayerConfig& layer : c.layers)
    if (layer.window < 0 || layer.rope < 0 || static_cast<size_t>(layer.rope) >= c.ropes.size())
      return errorf(ErrorCode::kBadData, "{}: a layer has window {} and rope {}", label, layer.window, layer.rope);
  return {};
}

}  // namespace godwit
