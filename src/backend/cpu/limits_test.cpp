#include "backend/cpu/limits.h"

#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"

namespace godwit {
namespace {

TEST(Limits, EveryThreadDoesItsPart) {
  ThreadPool one(1), three(3);
  const double flops = fma_round(one);
  EXPECT_GE(flops, 2.0 * 10 * 4'000'000);  // one lane at least
  EXPECT_EQ(fma_round(three), 3 * flops);
}

TEST(Limits, AReadRoundCountsItsBytes) {
  constexpr size_t kFloats = size_t{2} << 20;
  const Buffer buffer = cpu::aligned_buffer(kFloats * sizeof(float));
  auto* data = reinterpret_cast<float*>(buffer.data());
  std::fill_n(data, kFloats, 1.0F);
  ThreadPool pool(2);
  EXPECT_EQ(read_round(pool, {data, kFloats}), 4.0 * kFloats);
}

TEST(Limits, OfThisMachineAreNoNonsense) {
  const auto limits = measure_limits(1);
  ASSERT_TRUE(limits.has_value());
  EXPECT_GT(limits->fma_flops_per_second, 1e7);
  EXPECT_LT(limits->fma_flops_per_second, 1e13);
  EXPECT_GT(limits->read_bytes_per_second, 1e7);
  EXPECT_LT(limits->read_bytes_per_second, 1e13);
}

}  // namespace
}  // namespace godwit
