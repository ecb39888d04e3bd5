#include "backend/kv_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/half.h"

namespace godwit {
namespace {

// Not below `value`, which is not negative and at most kF16Max.
uint16_t f16_above(float value) {
  const uint16_t half = float_to_f16(value);
  return f16_to_float(half) < value ? static_cast<uint16_t>(half + 1) : half;
}

// Adding 1.5 * 2^23 rounds to an integer, ties to even, and leaves it in the low bits.
constexpr float kRound = 12582912.0f;

}  // namespace

float kv_code_number(int bits, uint8_t code, KvCodeScale scale) {
  // The product is exact, so that it does not matter whether it is fused with the sum.
  return f16_to_float(scale.middle) + f16_to_float(scale.scale) * kv_code_level(bits, code);
}

KvCodeScale kv_encode(int bits, const float* numbers, size_t count, uint8_t* codes) {
  float low = kF16Max, high = -kF16Max;
  bool nan = false;
  for (size_t i = 0; i < count; ++i) {
    low = std::min(low, numbers[i]);
    high = std::max(high, numbers[i]);
    nan |= numbers[i] != numbers[i];
  }
  if (nan) {
    std::fill_n(codes, count, uint8_t{0});
    return {0, 0x7e00};
  }
  low = std::clamp(low, -kF16Max, kF16Max);
  high = std::clamp(high, -kF16Max, kF16Max);
  const float top = kv_top_level(bits);
  KvCodeScale scale;
  scale.middle = float_to_f16(0.5f * low + 0.5f * high);
  const float middle = f16_to_float(scale.middle);
  scale.scale = f16_above(std::max(high - middle, middle - low) / top);
  const float step = f16_to_float(scale.scale), inverse = step > 0 ? 1 / step : 0;
  for (size_t i = 0; i < count; ++i) {
    const float level = (std::clamp(numbers[i], low, high) - middle) * inverse;
    if (bits < 8) {
      const float code = std::clamp(level + top, 0.0f, 2 * top) + kRound;
      codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(code) & 15);
    } else {
      const float magnitude = std::min(std::abs(level), 127.0f) + kRound;
      const uint32_t bits_of = std::bit_cast<uint32_t>(magnitude) & 127;
      codes[i] = static_cast<uint8_t>(bits_of | (level < 0 && bits_of != 0 ? 128 : 0));  // no -0
    }
  }
  return scale;
}

}  // namespace godwit
