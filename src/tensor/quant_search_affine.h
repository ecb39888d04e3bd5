// Inside src/tensor: like quant_search.h for values coded as scale * code + offset with codes 0..kTop.
//
// A few ranges give first codes: the values' own, shrunk about its middle, and stretched upwards so that the top codes
// stay free. Then codes and the least-squares line through them are improved in turn, which can only lower the error.
#pragma once

#include "tensor/quant_search.h"

namespace godwit::quant {

struct Line {
  float scale = 0;
  float offset = 0;
};

template <int kTop, class T>  // float or Lanes
T affine_code(T x, Line line, float inverse) {
  return WholeLevels<0, kTop>::nearest((x - line.offset) * inverse);
}

template <int kTop, int kCount>
float affine_error(const float* x, Line line) {
  const float inverse = inverse_of(line.scale);
  Lanes error{};
  for (int i = 0; i < kCount; i += kLanes) {
    const Lanes v = load_lanes(x + i);
    const Lanes difference = v - (line.scale * affine_code<kTop>(v, line, inverse) + line.offset);
    error += difference * difference;
  }
  return sum_of(error);
}

struct AffineMoments {
  float code = 0, code_code = 0, x_code = 0;
};

template <int kTop, int kCount>
AffineMoments affine_moments(const float* x, Line line) {
  const float inverse = inverse_of(line.scale);
  Lanes code_sum{}, code_code{}, x_code{};
  for (int i = 0; i < kCount; i += kLanes) {
    const Lanes v = load_lanes(x + i);
    const Lanes code = affine_code<kTop>(v, line, inverse);
    code_sum += code;
    code_code += code * code;
    x_code += v * code;
  }
  return {sum_of(code_sum), sum_of(code_code), sum_of(x_code)};
}

// The least-squares line for the codes that `line` gives. With kOffsetBelowZero the offset is at most 0.
template <int kTop, int kCount, bool kOffsetBelowZero>
Line refit(const float* x, float x_sum, Line line) {
  const AffineMoments m = affine_moments<kTop, kCount>(x, line);
  const float determinant = kCount * m.code_code - m.code * m.code;
  if (determinant <= 0) return line;
  Line fitted{(kCount * m.x_code - m.code * x_sum) / determinant,
              (m.code_code * x_sum - m.code * m.x_code) / determinant};
  if (kOffsetBelowZero && fitted.offset > 0) fitted = {m.x_code / m.code_code, 0};
  return fitted;
}

template <int kTop, int kCount, bool kOffsetBelowZero>
Line fit_line(const float* x, std::span<const float> stretches) {
  float low = x[0], high = x[0], x_sum = 0;
  for (int i = 0; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    x_sum += x[i];
  }
  if (kOffsetBelowZero) low = std::min(low, 0.0f);
  const float range = high - low;
  if (range < kNegligible) return {0, low};

  Line best;
  float best_error = std::numeric_limits<float>::infinity();
  for (const float stretch : stretches) {
    const float scale = range * stretch / kTop;
    Line line{scale, stretch > 1 ? low : low + (range - scale * kTop) / 2};
    if (kOffsetBelowZero && line.offset > 0) line.offset = 0;
    for (int round = 0; round < 2; ++round) line = refit<kTop, kCount, kOffsetBelowZero>(x, x_sum, line);
    const float error = affine_error<kTop, kCount>(x, line);
    if (error >= best_error) continue;
    best_error = error;
    best = line;
  }
  return best;
}

// The line with f16 coefficients next to `line` that codes the values best.
template <int kTop, int kCount>
Line nearby_f16_line(const float* x, Line line) {
  Line best;
  float best_error = std::numeric_limits<float>::infinity();
  const uint16_t centre = to_finite_f16(std::max(line.scale, 0.0f));
  for (int bits = std::max(centre - 1, 0); bits <= std::min(centre + 1, 0x7bff); ++bits) {
    const float scale = f16_to_float(static_cast<uint16_t>(bits));
    float residue = 0;
    for (int i = 0; i < kCount; ++i) residue += x[i] - scale * affine_code<kTop>(x[i], line, inverse_of(scale));
    for (const float offset : {line.offset, residue / kCount}) {
      const Line candidate{scale, f16_to_float(to_finite_f16(offset))};
      const float error = affine_error<kTop, kCount>(x, candidate);
      if (error >= best_error) continue;
      best_error = error;
      best = candidate;
    }
  }
  return best;
}

template <int kTop, int kCount>
void encode_affine(const float* x, Line line, uint8_t* codes) {
  const float inverse = inverse_of(line.scale);
  for (int i = 0; i < kCount; ++i) codes[i] = static_cast<uint8_t>(affine_code<kTop>(x[i], line, inverse));
}

// A super-block: x = d * scales[i / kSub] * code - dmin * minima[i / kSub].
template <int kSub>
struct AffineSuperBlock {
  uint16_t d = 0, dmin = 0;
  std::array<uint8_t, kSuperBlock / kSub> scales{};
  std::array<uint8_t, kSuperBlock / kSub> minima{};
  std::array<uint8_t, kSuperBlock> codes{};

  Line line(size_t sub) const {
    return {f16_to_float(d) * static_cast<float>(scales[sub]), -f16_to_float(dmin) * static_cast<float>(minima[sub])};
  }
};

// Whole scales and minima in [0, kMaxScale] around the wanted lines, for the block's d and dmin. Returns the error.
template <int kTop, int kSub, int kMaxScale>
float fit_sub_lines(const float* x, const Line* wanted, AffineSuperBlock<kSub>& block) {
  const auto nearest = [](float value, uint16_t unit) {
    return static_cast<int>(WholeLevels<0, kMaxScale>::nearest(value * inverse_of(f16_to_float(unit))));
  };
  float total = 0;
  for (size_t b = 0; b < kSuperBlock / kSub; ++b) {
    const int scale = nearest(wanted[b].scale, block.d);
    const int minimum = nearest(-wanted[b].offset, block.dmin);
    float best_error = std::numeric_limits<float>::infinity();
    AffineSuperBlock<kSub> trial = block;
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, kMaxScale); ++s) {
      for (int m = std::max(minimum - 1, 0); m <= std::min(minimum + 1, kMaxScale); ++m) {
        trial.scales[b] = static_cast<uint8_t>(s);
        trial.minima[b] = static_cast<uint8_t>(m);
        const float error = affine_error<kTop, kSub>(x + b * kSub, trial.line(b));
        if (error >= best_error) continue;
        best_error = error;
        block.scales[b] = trial.scales[b];
        block.minima[b] = trial.minima[b];
      }
    }
    total += best_error;
  }
  return total;
}

// The least-squares (d, dmin) for the codes, scales and minima of `block`.
template <int kTop, int kSub>
Line refit_units(const float* x, const AffineSuperBlock<kSub>& block) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // a = scale * code, b = -minimum
  for (size_t b = 0; b < kSuperBlock / kSub; ++b) {
    const AffineMoments m = affine_moments<kTop, kSub>(x + b * kSub, block.line(b));
    const double scale = block.scales[b], minimum = block.minima[b];
    double sum = 0;
    for (int i = 0; i < kSub; ++i) sum += x[b * kSub + static_cast<size_t>(i)];
    aa += scale * scale * m.code_code;
    ab -= scale * minimum * m.code;
    bb += minimum * minimum * kSub;
    xa += scale * m.x_code;
    xb -= minimum * sum;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant > 1e-9 * aa * bb)
    return {static_cast<float>((xa * bb - xb * ab) / determinant),
            static_cast<float>((aa * xb - ab * xa) / determinant)};
  if (aa > 0 && bb == 0) return {static_cast<float>(xa / aa), 0};
  return {f16_to_float(block.d), f16_to_float(block.dmin)};
}

// Never rounded away: where the unit would be less than the smallest f16, whole multiples of that are still of use.
inline uint16_t to_unit(float value) {
  return value > 0 ? to_finite_f16(std::max(value, kF16MinSubnormal)) : uint16_t{0};
}

template <int kTop, int kSub, int kMaxScale>
AffineSuperBlock<kSub> fit_affine_super_block(const float* x, std::span<const float> stretches) {
  Line wanted[kSuperBlock / kSub];
  Line largest;
  for (int b = 0; b < kSuperBlock / kSub; ++b) {
    wanted[b] = fit_line<kTop, kSub, true>(x + b * kSub, stretches);
    largest.scale = std::max(largest.scale, wanted[b].scale);
    largest.offset = std::max(largest.offset, -wanted[b].offset);
  }
  AffineSuperBlock<kSub> best;
  best.d = to_unit(largest.scale / kMaxScale);
  best.dmin = to_unit(largest.offset / kMaxScale);
  float best_error = fit_sub_lines<kTop, kSub, kMaxScale>(x, wanted, best);

  for (int round = 0; round < 2; ++round) {
    const Line units = refit_units<kTop, kSub>(x, best);
    AffineSuperBlock<kSub> candidate = best;
    candidate.d = to_unit(units.scale);
    candidate.dmin = to_unit(units.offset);
    const float error = fit_sub_lines<kTop, kSub, kMaxScale>(x, wanted, candidate);
    if (error >= best_error) break;
    best_error = error;
    best = candidate;
  }
  for (size_t b = 0; b < kSuperBlock / kSub; ++b)
    encode_affine<kTop, kSub>(x + b * kSub, best.line(b), best.codes.data() + b * kSub);
  return best;
}

}  // namespace godwit::quant
