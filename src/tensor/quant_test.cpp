// What the conversions do with given blocks and with awkward values, for every type.
#include "tensor/quant.h"

#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_test_data.h"

namespace godwit {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  GoldenReader golden("blocks.bin");
  std::set<DType> seen;
  while (!golden.done()) {
    const auto type = dtype_from_gguf_id(golden.take<uint32_t>());
    ASSERT_TRUE(type.has_value());
    seen.insert(*type);
    const size_t block_elements = golden.take<uint32_t>();
    const size_t block_bytes = golden.take<uint32_t>();
    EXPECT_EQ(block_elements, static_cast<size_t>(dtype_info(*type).block_elements)) << dtype_name(*type);
    EXPECT_EQ(block_bytes, static_cast<size_t>(dtype_info(*type).block_bytes)) << dtype_name(*type);

    const size_t blocks = golden.take<uint32_t>();
    const auto bytes = golden.take<std::byte>(blocks * block_bytes);
    const auto expected = golden.take<uint32_t>(blocks * block_elements);
    const std::vector<float> values = dequantized(*type, bytes, expected.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), expected[i]) << dtype_name(*type) << " element " << i;
  }
  EXPECT_EQ(seen.size(), all_dtypes().size() - 1) << "every type but i32";
}

TEST(PlainTypes, RoundAndKeepSpecialValues) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f / 3, 65520.0f, -1e30f, kInfinity, -kInfinity, 0x1p-149f};
  EXPECT_EQ(round_trip(DType::kF32, values), values);
  const std::vector<float> half = round_trip(DType::kF16, values);
  EXPECT_EQ(half[2], 0x1.554p-2f);
  EXPECT_EQ(half[3], kInfinity);
  EXPECT_EQ(half[4], -kInfinity);
  EXPECT_EQ(half[7], 0.0f);
  const std::vector<float> brain = round_trip(DType::kBF16, values);
  EXPECT_EQ(brain[2], 0x1.56p-2f);
  EXPECT_EQ(brain[5], kInfinity);
  EXPECT_TRUE(std::isnan(round_trip(DType::kF16, {kNan})[0]));
  EXPECT_TRUE(std::isnan(round_trip(DType::kBF16, {kNan})[0]));
}

TEST(PlainTypes, IntegersRoundAndSaturate) {
  const std::vector<float> values = {0.5f, 1.5f, -2.5f, 7.0f, 3e9f, -kInfinity, kNan};
  const auto bytes = quantized(DType::kI32, values);
  std::vector<int32_t> stored(values.size());
  std::memcpy(stored.data(), bytes.data(), bytes.size());
  EXPECT_EQ(stored, (std::vector<int32_t>{0, 2, -2, 7, INT32_MAX, INT32_MIN, 0}));
  EXPECT_EQ(dequantized(DType::kI32, bytes, 4)[3], 7.0f);
}

class BlockTypes : public ::testing::TestWithParam<DType> {
 protected:
  const DType type_ = GetParam();
  const size_t block_ = static_cast<size_t>(dtype_info(GetParam()).block_elements);
};

TEST_P(BlockTypes, ZeroStaysZero) {
  for (const float value : round_trip(type_, std::vector<float>(2 * block_, 0.0f))) EXPECT_EQ(value, 0.0f);
}

TEST_P(BlockTypes, ConstantsAreKept) {
  // MXFP4 has two steps per octave; the others meet any constant to the precision of f16, less where their scale is a
  // subnormal one.
  for (const float constant : {1.0f, -1.0f, 0.7251f, -0.0314f, 300.0f, 1e-3f}) {
    const float tolerance = type_ == DType::kMXFP4 ? 0.2f : constant == 1e-3f ? 0.012f : 0.003f;
    for (const float value : round_trip(type_, std::vector<float>(block_, constant)))
      ASSERT_NEAR(value, constant, tolerance * std::fabs(constant));
  }
}

TEST_P(BlockTypes, ErrorScalesWithTheValues) {
  const std::vector<float> values = gaussian_values(8 * block_, 1, 3);
  const double expected = rms_difference(values, round_trip(type_, values));
  for (const float factor : {0x1p-7f, 0x1p7f, 0x1p10f}) {
    std::vector<float> scaled = values;
    for (float& value : scaled) value *= factor;
    const double error = rms_difference(scaled, round_trip(type_, scaled)) / factor;
    EXPECT_LT(error, expected * 1.05) << factor;
  }
}

TEST_P(BlockTypes, HugeValuesSaturateToFiniteOnes) {
  std::vector<float> values = gaussian_values(block_, 1e30f, 5);
  values[1] = kInfinity;
  values[2] = -kInfinity;
  values[3] = std::numeric_limits<float>::max();
  const std::vector<float> again = round_trip(type_, values);
  for (const float value : again) EXPECT_TRUE(std::isfinite(value));
  EXPECT_GT(again[1], 6e4f);
  EXPECT_LT(again[2], -6e4f);
  EXPECT_GT(again[3], 6e4f);
}

TEST_P(BlockTypes, NanIsZeroAndLeavesTheOthersAlone) {
  std::vector<float> values = gaussian_values(block_, 1, 6);
  values[7] = 0;
  const auto expected = quantized(type_, values);
  values[7] = kNan;
  EXPECT_EQ(quantized(type_, values), expected);
}

TEST_P(BlockTypes, TinyValuesNeverGrow) {
  for (const float deviation : {1e-4f, 1e-6f, 1e-7f, 3e-8f, 1e-12f, 1e-30f, 1e-42f}) {
    const std::vector<float> values = gaussian_values(4 * block_, deviation, 7);
    const std::vector<float> zeros(values.size(), 0.0f);
    const std::vector<float> again = round_trip(type_, values);
    EXPECT_LE(rms_difference(values, again), rms_difference(values, zeros) * 1.0001) << deviation;
    for (const float value : again) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(BlockTypes, SubnormalScalesStillCarryInformation) {
  // Steps of 2^-24 are all that an f16 scale can give here; the deviation is 32 of them.
  const std::vector<float> values = gaussian_values(8 * block_, 0x1p-19f, 8);
  EXPECT_LT(rms_difference(values, round_trip(type_, values)), 0.3 * 0x1p-19);
}

TEST_P(BlockTypes, AnOutlierIsMet) {
  std::vector<float> values = gaussian_values(block_, 0.01f, 9);
  for (const float outlier : {-40.0f, 40.0f}) {
    values[11] = outlier;
    EXPECT_NEAR(round_trip(type_, values)[11], outlier, type_ == DType::kMXFP4 ? 8 : 0.1);
  }
}

TEST_P(BlockTypes, BlocksAreIndependentAndNeedNoAlignment) {
  const std::vector<float> values = gaussian_values(5 * block_, 1, 10);
  const auto together = quantized(type_, values);
  const size_t bytes = dtype_bytes(type_, block_);
  std::vector<std::byte> apart(bytes + 1);
  for (size_t i = 0; i < 5; ++i) {
    quantize(type_, values.data() + i * block_, apart.data() + 1, block_);
    EXPECT_EQ(std::memcmp(apart.data() + 1, together.data() + i * bytes, bytes), 0) << i;
    std::vector<float> out(block_);
    dequantize(type_, apart.data() + 1, out.data(), block_);
    EXPECT_EQ(out, dequantized(type_, {apart.begin() + 1, apart.end()}, block_));
  }
}

TEST_P(BlockTypes, NothingIsNothing) {
  quantize(type_, nullptr, nullptr, 0);
  dequantize(type_, nullptr, nullptr, 0);
}

TEST_P(BlockTypes, PartsOfBlocksAreRefused) {
  std::vector<float> values(2 * block_);
  std::vector<std::byte> blocks(dtype_bytes(type_, 2 * block_));
  EXPECT_DEATH(quantize(type_, values.data(), blocks.data(), block_ + 1), "whole");
  EXPECT_DEATH(dequantize(type_, blocks.data(), values.data(), block_ - 1), "whole");
}

INSTANTIATE_TEST_SUITE_P(All, BlockTypes, ::testing::ValuesIn(block_types()), type_name);

}  // namespace
}  // namespace godwit
