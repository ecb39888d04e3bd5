// Rotary frequencies and their scalings. Frequencies are computed in fp32 in the order that transformers uses, because
// at position 100,000 the last bit of a frequency is visible in the angle.
//
// linear: position interpolation (Chen et al. 2023). dynamic: NTK-aware by length. yarn: Peng et al. 2023 (arXiv
// 2309.00071). llama3: the piecewise rule of Llama 3.1. longrope: Ding et al. 2024 (arXiv 2402.13753).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/config.h"

namespace godwit {
namespace {

using Scaling = RopeConfig::Scaling;

std::vector<float> plain_frequencies(double theta, int dim) {
  std::vector<float> inv(static_cast<size_t>(dim / 2));
  for (size_t i = 0; i < inv.size(); ++i) {
    float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    inv[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
  return inv;
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void scale_yarn(const RopeConfig& rope, int dim, RopeTable& table) {
  auto correction = [&](double rotations) {
    return dim * std::log(static_cast<double>(rope.original_context) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F, 1.0F);
    float keep = 1 - ramp;  // share of the unscaled frequency
    float interpolated = table.inv_freq[i] / static_cast<float>(rope.factor);
    table.inv_freq[i] = interpolated * (1 - keep) + table.inv_freq[i] * keep;
  }
  if (rope.attention_factor > 0)
    table.magnitude = static_cast<float>(rope.attention_factor);
  else if (rope.mscale > 0 && rope.mscale_all_dim > 0)
    table.magnitude =
        static_cast<float>(yarn_mscale(rope.factor, rope.mscale) / yarn_mscale(rope.factor, rope.mscale_all_dim));
  else
    table.magnitude = static_cast<float>(yarn_mscale(rope.factor, 1));
}

void scale_llama3(const RopeConfig& rope, RopeTable& table) {
  const auto old_length = static_cast<double>(rope.original_context);
  const double long_wave = old_length / rope.low_freq_factor, short_wave = old_length / rope.high_freq_factor;
  for (float& inv : table.inv_freq) {
    double wave = 2 * std::numbers::pi / inv;
    if (wave < short_wave) continue;
    float scaled = inv / static_cast<float>(rope.factor);
    if (wave <= long_wave) {
      auto smooth = static_cast<float>((old_length / wave - rope.low_freq_factor) /
                                       (rope.high_freq_factor - rope.low_freq_factor));
      scaled = (1 - smooth) * scaled + smooth * inv;
    }
    inv = scaled;
  }
}

void scale_longrope(const RopeConfig& rope, const ModelConfig& config, int64_t context_tokens, RopeTable& table) {
  const auto& factors = context_tokens > rope.original_context ? rope.long_factors : rope.short_factors;
  for (size_t i = 0; i < table.inv_freq.size(); ++i) table.inv_freq[i] /= factors[i];
  const double factor = rope.factor > 1
                            ? rope.factor
                            : static_cast<double>(config.context_length) / static_cast<double>(rope.original_context);
  if (rope.attention_factor > 0)
    table.magnitude = static_cast<float>(rope.attention_factor);
  else if (factor > 1)
    table.magnitude =
        static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(rope.original_context))));
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& rope, const ModelConfig& config, int64_t context_tokens) {
  const int dim = config.rotary_dim;
  RopeTable table{plain_frequencies(rope.theta, dim)};
  if (!rope.divisors.empty())
    for (size_t i = 0; i < table.inv_freq.size(); ++i) table.inv_freq[i] /= rope.divisors[i];
  switch (rope.scaling) {
    case Scaling::kNone:
      break;
    case Scaling::kLinear:
      for (float& inv : table.inv_freq) inv /= static_cast<float>(rope.factor);
      break;
    case Scaling::kDynamic: {
      const double length = static_cast<double>(std::max(context_tokens, rope.original_context));
      const double stretch = rope.factor * length / static_cast<double>(rope.original_context) - (rope.factor - 1);
      table.inv_freq = plain_frequencies(rope.theta * std::pow(stretch, dim / (dim - 2.0)), dim);
      break;
    }
    case Scaling::kYarn:
      scale_yarn(rope, dim, table);
      break;
    case Scaling::kLlama3:
      scale_llama3(rope, table);
      break;
    case Scaling::kLongRope:
      scale_longrope(rope, config, context_tokens, table);
      break;
  }
  return table;
}

}  // namespace godwit
