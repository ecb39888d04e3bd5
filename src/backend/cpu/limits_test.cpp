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
  for (const std::string& simd : {cpu_simd_targets().front(), cpu_fp32_target()}) {
    const auto limits = measure_limits(1, simd);
    ASSERT_TRUE(limits.has_value());
    EXPECT_GT(limits->fma_flops_per_second, 1e7);
    EXPECT_LT(limits->fma_flops_per_second, 1e13);
    const bool in_bf16 = simd.starts_with("AMX_") || simd == "AVX512_BF16";
    EXPECT_EQ(limits->fma_unit.find("bf16") != std::string::npos, in_bf16);
    EXPECT_LE(limits->streamed_flops_per_second, 1.1 * limits->fma_flops_per_second);
    EXPECT_GT(limits->read_bytes_per_second, 1e7);
    EXPECT_LT(limits->read_bytes_per_second, 1e13);
  }
  // Where quantized weights are multiplied in vectors of 8 bits.
  for (const char* simd : {"AVX512_BF16", "AVX512_VNNI", "AVX512_INT8", "AVX_VNNI", "AVX2_INT8"})
    if (const auto limits = measure_limits(1, simd)) {
      EXPECT_GT(limits->int8_ops_per_second, 1e9) << simd;
      EXPECT_LT(limits->int8_ops_per_second, 1e13) << simd;
    }
  EXPECT_EQ(measure_limits(1, cpu_fp32_target())->int8_ops_per_second, 0);
  EXPECT_FALSE(measure_limits(1, "AVX9").has_value());
}

}  // namespace
}  // namespace godwit
