// How much the quantizers lose: bounds per type on normal values, against the gguf package, and against fewer bits.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tensor/quant.h"
#include "tensor/quant_test_data.h"

namespace godwit {
namespace {

struct Gaussian {
  std::vector<float> values;
  std::map<DType, double> gguf_error;
};

Gaussian read_gaussian() {
  GoldenReader golden("gaussian.bin");
  Gaussian data;
  data.values = golden.take<float>(golden.take<uint32_t>());
  while (!golden.done()) {
    const auto type = dtype_from_gguf_id(golden.take<uint32_t>());
    EXPECT_TRUE(type.has_value());
    if (type) data.gguf_error[*type] = golden.take<double>();
  }
  return data;
}

double error_of(DType type, const std::vector<float>& values) {
  return rms_difference(values, round_trip(type, values));
}

TEST(QuantError, AtMostThatOfTheGgufPackage) {
  const Gaussian data = read_gaussian();
  EXPECT_EQ(data.gguf_error.size(), 8u);
  for (const auto& [type, theirs] : data.gguf_error)
    EXPECT_LE(error_of(type, data.values), theirs * (is_quantized(type) ? 0.99 : 1.0000001)) << dtype_name(type);
}

TEST(QuantError, WithinTheBoundOfItsType) {
  // Relative root mean square error on normal values: what a careful quantizer reaches, and two per cent.
  const std::map<DType, double> bounds = {
      {DType::kQ4_0, 0.0823},  {DType::kQ4_1, 0.0711},  {DType::kQ5_0, 0.0408},   {DType::kQ5_1, 0.0341},
      {DType::kQ8_0, 0.00498}, {DType::kQ2_K, 0.2651},  {DType::kQ3_K, 0.1461},   {DType::kQ4_K, 0.0712},
      {DType::kQ5_K, 0.0350},  {DType::kQ6_K, 0.01695}, {DType::kIQ4_NL, 0.0747}, {DType::kIQ4_XS, 0.0752},
      {DType::kMXFP4, 0.1137},
  };
  const std::vector<float> values = gaussian_values(64 * 1024, 0.02f, 1);
  const double size = rms_difference(values, std::vector<float>(values.size(), 0.0f));
  for (const DType type : block_types()) {
    ASSERT_TRUE(bounds.contains(type)) << dtype_name(type);
    EXPECT_LT(error_of(type, values) / size, bounds.at(type)) << dtype_name(type);
  }
}

TEST(QuantError, MoreBitsLoseLess) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const std::vector<float> values = gaussian_values(16 * 256, 0.5f, seed);
    double previous = rms_difference(values, std::vector<float>(values.size(), 0.0f));
    for (const DType type : {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0,
                             DType::kBF16, DType::kF16, DType::kF32}) {
      const double error = error_of(type, values);
      EXPECT_LT(error, previous) << dtype_name(type);
      previous = error;
    }
    EXPECT_LT(error_of(DType::kQ5_0, values), error_of(DType::kQ4_0, values));
    EXPECT_LT(error_of(DType::kQ5_1, values), error_of(DType::kQ4_1, values));
    EXPECT_LT(error_of(DType::kQ4_1, values), error_of(DType::kQ4_0, values));
    EXPECT_LT(error_of(DType::kIQ4_NL, values), error_of(DType::kQ4_0, values));
  }
}

// Values that already lie on a type's grid find that grid again. Super-blocks of whole sub-scales have many nearly
// equal grids, so for them it is only close: the second pass moves values by less than a fifth of what the first did.
TEST(QuantError, ASecondPassLosesLittle) {
  const std::vector<float> values = gaussian_values(64 * 256, 1, 4);
  for (const DType type : block_types()) {
    const bool sub_scales = dtype_info(type).block_elements == 256 && type != DType::kIQ4_XS;
    const std::vector<float> once = round_trip(type, values);
    const double first = rms_difference(values, once);
    EXPECT_LE(rms_difference(once, round_trip(type, once)), first * (sub_scales ? 0.2 : 0.001)) << dtype_name(type);
  }
}

}  // namespace
}  // namespace godwit
