#include "backend/kv_codes.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/half.h"

namespace godwit {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> stored(int bits, const std::vector<float>& numbers, float* step = nullptr) {
  std::vector<uint8_t> codes(numbers.size());
  const KvCodeScale scale = kv_encode(bits, numbers.data(), numbers.size(), codes.data());
  std::vector<float> read;
  for (uint8_t code : codes) {
    EXPECT_LT(code, 1 << bits);
    read.push_back(kv_code_number(bits, code, scale));
  }
  if (step != nullptr) *step = f16_to_float(scale.scale);
  return read;
}

class KvCodes : public ::testing::TestWithParam<int> {};

TEST_P(KvCodes, TheErrorIsAtMostHalfAStepOfTheRange) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  const float levels = 2 * kv_top_level(GetParam());
  for (float spread : {1e-3f, 1.0f, 100.0f})
    for (float centre : {0.0f, 1.0f, -30.0f})
      for (size_t count : {8u, 64u, 256u})
        for (int round = 0; round < 20; ++round) {
          std::vector<float> numbers(count);
          for (float& value : numbers) value = normal(random) * spread + centre;
          float step = 0;
          const std::vector<float> read = stored(GetParam(), numbers, &step);
          const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
          // The middle is rounded to f16, which can widen the range by its spacing; so is the scale.
          const float middle = std::abs(*low + *high) / 2;
          ASSERT_LE(step, (*high - *low + middle * 0x1p-10f) / levels * (1 + 0x1p-9f) + 0x1p-23f);
          for (size_t i = 0; i < count; ++i)
            ASSERT_LE(std::abs(read[i] - numbers[i]), step / 2 * 1.0001f + middle * 0x1p-22f) << numbers[i];
        }
}

TEST_P(KvCodes, ConstantsAndTheEndsOfTheRange) {
  for (float value : {0.0f, 1.0f, -0.75f, 65504.0f})
    for (float read : stored(GetParam(), std::vector<float>(64, value))) ASSERT_EQ(read, value);
  const std::vector<float> ends = stored(GetParam(), {-3.0f, 0.5f, 3.0f, 0.0f});
  EXPECT_NEAR(ends[0], -3.0f, 0.01f);
  EXPECT_NEAR(ends[2], 3.0f, 0.01f);
}

TEST_P(KvCodes, InfinityAndWhatF16CannotHoldSaturate) {
  for (float large : {kInfinity, 1e30f, 70000.0f}) {
    const std::vector<float> read = stored(GetParam(), {large, -large, 0.0f, 1.0f});
    for (float value : read) ASSERT_TRUE(std::isfinite(value));
    EXPECT_NEAR(read[0], 65504.0f, 65504 * 0.002f);
    EXPECT_NEAR(read[1], -65504.0f, 65504 * 0.002f);
    const std::vector<float> same = stored(GetParam(), std::vector<float>(32, large));
    for (float value : same) ASSERT_EQ(value, 65504.0f);
  }
}

TEST_P(KvCodes, NanMakesItsTokenNan) {
  std::vector<float> numbers(64, 1.0f);
  numbers[17] = kNan;
  for (float value : stored(GetParam(), numbers)) ASSERT_TRUE(std::isnan(value));
}

TEST_P(KvCodes, LevelsAreExactInBf16) {
  for (int code = 0; code < 1 << GetParam(); ++code) {
    const float level = kv_code_level(GetParam(), static_cast<uint8_t>(code));
    ASSERT_EQ(bf16_to_float(float_to_bf16(level)), level);
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, KvCodes, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace godwit
