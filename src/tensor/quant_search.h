// Inside src/tensor: the scale of a run of values that gives the least squared error, and the same for super-blocks
// whose sub-scales are small integers times one f16.
//
// A `Levels` type names the numbers that codes stand for: nearest(v) is the level nearest to v, code(level) its code.
// For a given choice of levels l the best scale is the least-squares one, sum(x l) / sum(l l); which levels are chosen
// depends on the scale again. So a few scales spread around "the extreme value gets the extreme level" are tried, each
// is replaced by its least-squares scale, and the one that explains most of the values' energy wins.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_lanes.h"

namespace godwit::quant {

// Below half of the smallest f16 a block is zero: no scale could hold it, and squares of such values may underflow.
inline constexpr float kNegligible = kF16MinSubnormal / 2;

inline float inverse_of(float scale) {
  return scale != 0 ? 1 / scale : 0.0f;
}

inline uint16_t to_finite_f16(float value) {
  return float_to_f16(std::clamp(value, -kF16Max, kF16Max));
}

// The whole numbers kLow..kHigh.
template <int kLow, int kHigh>
struct WholeLevels {
  template <class T>  // float or Lanes
  static T nearest(T v) {
    return round_small(bound(v, kLow, kHigh));
  }
  static uint8_t code(float level) { return static_cast<uint8_t>(static_cast<int>(level) - kLow); }
};

struct Moments {
  float x_level = 0;
  float level_level = 0;
};

template <class Levels, int kCount>
Moments moments_at(const float* x, float inverse) {
  Lanes x_level{}, level_level{};
  for (int i = 0; i < kCount; i += kLanes) {
    const Lanes v = load_lanes(x + i);
    const Lanes level = Levels::nearest(v * inverse);
    x_level += v * level;
    level_level += level * level;
  }
  return {sum_of(x_level), sum_of(level_level)};
}

// Squared error of the values when coded with this scale.
template <class Levels, int kCount>
float error_at(const float* x, float scale) {
  const float inverse = inverse_of(scale);
  Lanes error{};
  for (int i = 0; i < kCount; i += kLanes) {
    const Lanes v = load_lanes(x + i);
    const Lanes difference = v - scale * Levels::nearest(v * inverse);
    error += difference * difference;
  }
  return sum_of(error);
}

// The value of largest magnitude, with its sign.
template <int kCount>
float extreme_of(const float* x) {
  float low = x[0], high = x[0];
  for (int i = 1; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  return -low > high ? low : high;
}

// Tries the scales extreme / divisor; 0 if the values are negligible.
template <class Levels, int kCount>
float fit_scale(const float* x, std::span<const float> divisors) {
  const float extreme = extreme_of<kCount>(x);
  if (std::fabs(extreme) < kNegligible) return 0;
  float best_gain = 0, best_scale = 0;
  for (const float divisor : divisors) {
    const Moments m = moments_at<Levels, kCount>(x, divisor / extreme);
    const float gain = m.level_level > 0 ? m.x_level * m.x_level / m.level_level : 0;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_scale = m.x_level / m.level_level;
  }
  const Moments m = moments_at<Levels, kCount>(x, inverse_of(best_scale));
  return m.level_level > 0 ? m.x_level / m.level_level : best_scale;
}

// The f16 next to `scale` that codes the values best: matters where f16 is coarse.
template <class Levels, int kCount>
uint16_t nearby_f16_scale(const float* x, float scale) {
  const uint16_t centre = to_finite_f16(scale);
  uint16_t best = centre;
  float best_error = error_at<Levels, kCount>(x, f16_to_float(centre));
  for (const int step : {-1, 1}) {
    const int magnitude = (centre & 0x7fff) + step;
    if (magnitude < 0 || magnitude >= 0x7c00) continue;
    const auto candidate = static_cast<uint16_t>((centre & 0x8000) | magnitude);
    const float error = error_at<Levels, kCount>(x, f16_to_float(candidate));
    if (error >= best_error) continue;
    best_error = error;
    best = candidate;
  }
  return best;
}

template <class Levels, int kCount>
void encode(const float* x, float scale, uint8_t* codes) {
  const float inverse = inverse_of(scale);
  for (int i = 0; i < kCount; ++i) codes[i] = Levels::code(Levels::nearest(x[i] * inverse));
}

// A super-block: x = d * scales[i / kSub] * level.
template <int kSub>
struct ScaledSuperBlock {
  uint16_t d = 0;
  std::array<int8_t, kSuperBlock / kSub> scales{};
  std::array<uint8_t, kSuperBlock> codes{};
};

// Whole sub-scales in [kLow, kHigh] for a given d, each the best of the three around the wanted one. Returns the error.
template <class Levels, int kSub, int kLow, int kHigh>
float fit_sub_scales(const float* x, const float* wanted, float d, int8_t* scales) {
  float total = 0;
  for (int b = 0; b < kSuperBlock / kSub; ++b) {
    const float centre = std::clamp(round_small(std::clamp(wanted[b] * inverse_of(d), -1e6f, 1e6f)),
                                    static_cast<float>(kLow), static_cast<float>(kHigh));
    float best_error = std::numeric_limits<float>::infinity();
    for (const float step : {0.0f, -1.0f, 1.0f}) {
      const float scale = centre + step;
      if (scale < kLow || scale > kHigh) continue;
      const float error = error_at<Levels, kSub>(x + b * kSub, d * scale);
      if (error >= best_error) continue;
      best_error = error;
      scales[b] = static_cast<int8_t>(scale);
    }
    total += best_error;
  }
  return total;
}

// `divisors` as in fit_scale; `steps` are what the largest sub-scale is tried as.
template <class Levels, int kSub, int kLow, int kHigh>
ScaledSuperBlock<kSub> fit_super_block(const float* x, std::span<const float> divisors, std::span<const float> steps) {
  constexpr int kSubs = kSuperBlock / kSub;
  ScaledSuperBlock<kSub> best;
  float wanted[kSubs];
  for (int b = 0; b < kSubs; ++b) wanted[b] = fit_scale<Levels, kSub>(x + b * kSub, divisors);
  const float extreme = extreme_of<kSubs>(wanted);

  float best_error = std::numeric_limits<float>::infinity();
  const auto consider = [&](float d) {
    if (d != 0 && std::fabs(d) < kF16MinSubnormal) d = std::copysign(kF16MinSubnormal, d);
    ScaledSuperBlock<kSub> candidate;
    candidate.d = to_finite_f16(d);
    const float error =
        fit_sub_scales<Levels, kSub, kLow, kHigh>(x, wanted, f16_to_float(candidate.d), candidate.scales.data());
    if (error >= best_error) return;
    best_error = error;
    best = candidate;
  };
  for (const float step : steps) consider(extreme / step);

  // The least-squares d for the sub-scales and levels of the best so far.
  const float d = f16_to_float(best.d);
  float x_level = 0, level_level = 0;
  for (int b = 0; b < kSubs; ++b) {
    const float scale = best.scales[static_cast<size_t>(b)];
    const Moments m = moments_at<Levels, kSub>(x + b * kSub, inverse_of(d * scale));
    x_level += scale * m.x_level;
    level_level += scale * scale * m.level_level;
  }
  if (level_level > 0) consider(x_level / level_level);

  const float coarse = f16_to_float(best.d);
  if (std::fabs(coarse) < kF16MinNormal)
    for (const float step : {-2.0f, -1.0f, 1.0f, 2.0f}) consider(coarse + step * kF16MinSubnormal);

  for (int b = 0; b < kSubs; ++b) {
    const float scale = f16_to_float(best.d) * best.scales[static_cast<size_t>(b)];
    encode<Levels, kSub>(x + b * kSub, scale, best.codes.data() + b * kSub);
  }
  return best;
}

}  // namespace godwit::quant
