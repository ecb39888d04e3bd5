// Codes of 2, 4 or 8 bits for the K or the V of one token and head (or for one dimension of a page's keys, see
// KvFormat::k_by_dim; then read "dimension" for "token"): number = middle + scale * level(code), with `middle`
// and `scale` in f16 and levels evenly spaced around 0. Levels are numbers of few bits, so that products of codes are
// exact in bf16 and scale and middle can be applied to sums.
//
// The error is at most half a scale, where a scale is (largest - smallest) / (number of levels - 1), rounded up. What
// is beyond f16's range, infinity too, becomes its largest number; a NaN makes all numbers of its token NaN, and no
// others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace godwit {

struct KvCodeScale {
  uint16_t scale = 0, middle = 0;  // f16
};

inline float kv_top_level(int bits) {
  return bits == 2 ? 1.5f : bits == 4 ? 7.5f : 127.0f;
}

// 8 bits are sign and magnitude, -127 ... 127; 4 bits are -7.5, -6.5 ... 7.5; 2 bits are -1.5 ... 1.5.
inline float kv_code_level(int bits, uint8_t code) {
  if (bits < 8) return static_cast<float>(code) - kv_top_level(bits);
  const auto magnitude = static_cast<float>(code & 127);
  return code < 128 ? magnitude : -magnitude;
}

float kv_code_number(int bits, uint8_t code, KvCodeScale scale);

// codes[count], one per byte.
KvCodeScale kv_encode(int bits, const float* numbers, size_t count, uint8_t* codes);

}  // namespace godwit
