#include "backend/cpu/bf16_expand.h"

#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/features.h"
#include "backend/cpu/kernels.h"
#include "tensor/half.h"
#include "tensor/quant.h"

namespace godwit::cpu {
namespace {

// Every type's values are dequantize()'s, rounded, whatever the part of the row and the place.
TEST(Bf16Expand, EqualsDequantizedValuesRounded) {
  if (!has_avx512_bf16()) GTEST_SKIP() << "no AVX512_BF16";
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.1F);
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.dtype == DType::kF32 || info.dtype == DType::kI32) continue;
    SCOPED_TRACE(info.name);
    const bool plain = info.block_elements == 1;
    for (size_t in : {plain ? size_t{5} : size_t{256}, plain ? size_t{301} : size_t{512},
                      info.block_elements == 256 ? size_t{768} : size_t{352}}) {
      std::vector<float> values(in), expanded(in);
      for (float& value : values) value = normal(generator);
      std::vector<std::byte> row(dtype_bytes(info.dtype, in));
      quantize(info.dtype, values.data(), row.data(), in);
      dequantize(info.dtype, row.data(), expanded.data(), in);
      for (size_t k = 0; k < in; k += 256) {
        const size_t count = in - k, stride = 3 * kBf16Block, blocks = (count + 31) / 32;
        const Buffer buffer = aligned_buffer(blocks * stride * 2);
        std::memset(buffer.data(), 0xFF, buffer.bytes);
        auto* out = reinterpret_cast<uint16_t*>(buffer.data());
        expand_rows_to_bf16(info.dtype)({row.data(), 0, 1, k, count, 64}, out, 3);
        for (size_t i = 0; i < blocks * stride; ++i) {
          const size_t at = k + i / stride * 32 + i % stride;
          const uint16_t want = i % stride >= 32 ? 0xFFFF : at < in ? float_to_bf16(expanded[at]) : 0;
          ASSERT_EQ(out[i], want) << "value " << at << " from " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace godwit::cpu
