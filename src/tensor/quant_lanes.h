// Inside src/tensor: four floats that are worked on at once, for the search loops of the quantizers.
//
// The vector extension that GCC and Clang share: plain operators, any processor, and one fixed order of additions, so
// the chosen bits are the same everywhere.
#pragma once

#include <cstring>

namespace godwit::quant {

using Lanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline Lanes load_lanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

inline float sum_of(Lanes v) {
  return (v[0] + v[1]) + (v[2] + v[3]);
}

// To the nearest whole number, ties to even, for |v| < 2^22.
inline float round_small(float v) {
  return (v + 0x1.8p23f) - 0x1.8p23f;
}
inline Lanes round_small(Lanes v) {
  return (v + 0x1.8p23f) - 0x1.8p23f;
}

inline float bound(float v, float low, float high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}
inline Lanes bound(Lanes v, float low, float high) {
  v = v < low ? Lanes{} + low : v;
  return v > high ? Lanes{} + high : v;
}

}  // namespace godwit::quant
