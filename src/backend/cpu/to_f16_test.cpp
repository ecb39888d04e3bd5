#include "backend/cpu/to_f16.h"

#include <bit>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "tensor/half.h"

namespace godwit::cpu {
namespace {

// Every sign, exponent and beginning of a fraction, with what decides how it is rounded: ties, and just beside them.
TEST(ToF16, RoundsAsTheScalarFunctionOnEveryTarget) {
  std::vector<float> numbers;
  for (uint32_t high = 0; high < 1u << 16; ++high)
    for (uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x8000u, 0xffffu})
      numbers.push_back(std::bit_cast<float>(high << 16 | low));
  numbers.resize(numbers.size() - 5);  // not a whole number of vectors
  std::vector<uint16_t> expected;
  for (float number : numbers) expected.push_back(float_to_f16(number));
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::vector<uint16_t> halves(numbers.size());
    to_f16(numbers.data(), halves.data(), halves.size());
    hwy::SetSupportedTargetsForTest(0);
    size_t different = 0;
    for (size_t i = 0; i < halves.size(); ++i) different += halves[i] != expected[i] ? 1 : 0;
    EXPECT_EQ(different, 0u) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace godwit::cpu
