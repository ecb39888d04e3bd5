#include "engine/attention_cost.h"

namespace godwit {

double attention_tokens(const ModelConfig& c) {
  const double q = static_cast<double>(c.heads) * c.head_dim, kv = static_cast<double>(c.kv_heads) * c.head_dim;
  double products = 0, attention = 0;
  for (const LayerConfig& layer : c.layers) {
    const auto dim = static_cast<double>(c.dim);
    const auto ffn = static_cast<double>(layer.experts ? c.expert_ffn_dim * c.experts_per_token : c.ffn_dim);
    products += dim * (2 * q + 2 * kv + 3 * ffn);
    attention += 2 * q;
  }
  return products / attention;
}

}  // namespace godwit
