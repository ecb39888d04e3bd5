#include "tensor/half.h"

#include <cmath>

#include <gtest/gtest.h>

namespace godwit {
namespace {

bool is_nan_f16(uint32_t half) {
  return (half & 0x7fff) > 0x7c00;
}

TEST(Half, EveryF16BitPatternSurvivesTheRoundTrip) {
  for (uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = f16_to_float(static_cast<uint16_t>(half));
    if (is_nan_f16(half)) {
      EXPECT_TRUE(std::isnan(value)) << half;
      EXPECT_EQ(float_to_f16(value), half | 0x200);
    } else {
      EXPECT_EQ(float_to_f16(value), half);
    }
  }
}

TEST(Half, F16ValuesAreThoseOfTheDefinition) {
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const int exponent = static_cast<int>(half >> 10);
    const int mantissa = static_cast<int>(half & 0x3ff);
    const double expected = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(f16_to_float(static_cast<uint16_t>(half)), expected);
    EXPECT_EQ(f16_to_float(static_cast<uint16_t>(half | 0x8000)), -expected);
  }
  EXPECT_EQ(f16_to_float(0x7c00), INFINITY);
  EXPECT_EQ(f16_to_float(0xfc00), -INFINITY);
  EXPECT_TRUE(std::signbit(f16_to_float(0x8000)));
}

TEST(Half, F16RoundsToNearestTiesToEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const float low = f16_to_float(static_cast<uint16_t>(half));
    const float high = f16_to_float(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(float_to_f16(middle), half + (half & 1)) << half;
    EXPECT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), half);
    EXPECT_EQ(float_to_f16(-std::nextafter(middle, INFINITY)), (half + 1) | 0x8000);
  }
}

TEST(Half, F16Overflow) {
  EXPECT_EQ(float_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-3e38f), 0xfc00);
  EXPECT_EQ(float_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-149f), 0);
  EXPECT_EQ(float_to_f16(-0x1p-149f), 0x8000);
  EXPECT_TRUE(is_nan_f16(float_to_f16(std::bit_cast<float>(0x7f800001u))));
}

TEST(Half, Bf16RoundsAndKeepsTheSpecialValues) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    const uint32_t quiet = std::isnan(value) ? bits | 0x40 : bits;
    EXPECT_EQ(float_to_bf16(value), quiet);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(bits << 16 | 0x8000)), bits + (bits & 1));
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(bits << 16 | 0x7fff)), bits);
    EXPECT_EQ(float_to_bf16(std::bit_cast<float>(bits << 16 | 0x8001)), bits + 1);
  }
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Half, E8m0) {
  for (int code = 0; code < 256; ++code)
    EXPECT_EQ(e8m0_to_half_float(static_cast<uint8_t>(code)), std::ldexp(1.0, code - 128));
}

}  // namespace
}  // namespace godwit
