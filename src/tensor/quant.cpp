#include "tensor/quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_rows.h"

namespace godwit {
namespace {

template <class Stored, float (*Convert)(Stored)>
void load_plain(const std::byte* from, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
    out[i] = Convert(stored);
  }
}

template <class Stored, Stored (*Convert)(float)>
void store_plain(const float* values, std::byte* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Stored stored = Convert(values[i]);
    std::memcpy(to + i * sizeof stored, &stored, sizeof stored);
  }
}

void load_f32(const std::byte* from, float* out, size_t count) {
  std::memcpy(out, from, count * sizeof(float));
}
void store_f32(const float* values, std::byte* to, size_t count) {
  std::memcpy(to, values, count * sizeof(float));
}

float int_to_float(int32_t value) {
  return static_cast<float>(value);
}

int32_t float_to_int(float value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p31f) return std::numeric_limits<int32_t>::max();
  if (value <= -0x1p31f) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(std::nearbyint(value));
}

struct Row {
  DType type;
  DequantizeBlocks dequantize;
  QuantizeBlocks quantize;
  float limit;  // block types: larger magnitudes saturate to it
};

// In the order of the enum.
constexpr Row kRows[] = {
    {DType::kF32, load_f32, store_f32, 0},
    {DType::kF16, load_plain<uint16_t, f16_to_float>, store_plain<uint16_t, float_to_f16>, 0},
    {DType::kBF16, load_plain<uint16_t, bf16_to_float>, store_plain<uint16_t, float_to_bf16>, 0},
    {DType::kI32, load_plain<int32_t, int_to_float>, store_plain<int32_t, float_to_int>, 0},
    {DType::kQ4_0, dequantize_q4_0, quantize_q4_0, kF16Max * 7},
    {DType::kQ4_1, dequantize_q4_1, quantize_q4_1, kF16Max},
    {DType::kQ5_0, dequantize_q5_0, quantize_q5_0, kF16Max * 15},
    {DType::kQ5_1, dequantize_q5_1, quantize_q5_1, kF16Max},
    {DType::kQ8_0, dequantize_q8_0, quantize_q8_0, kF16Max * 127},
    {DType::kQ2_K, dequantize_q2_k, quantize_q2_k, kF16Max * 15},
    {DType::kQ3_K, dequantize_q3_k, quantize_q3_k, kF16Max * 31 * 3},
    {DType::kQ4_K, dequantize_q4_k, quantize_q4_k, kF16Max * 63},
    {DType::kQ5_K, dequantize_q5_k, quantize_q5_k, kF16Max * 63},
    {DType::kQ6_K, dequantize_q6_k, quantize_q6_k, kF16Max * 127 * 31},
    {DType::kIQ4_NL, dequantize_iq4_nl, quantize_iq4_nl, kF16Max * 113},
    {DType::kIQ4_XS, dequantize_iq4_xs, quantize_iq4_xs, kF16Max * 31 * 113},
    {DType::kMXFP4, dequantize_mxfp4, quantize_mxfp4, 0x1.8p127f},
};

const Row& row_of(DType type) {
  const size_t index = static_cast<size_t>(type);
  GODWIT_CHECK(index < std::size(kRows) && kRows[index].type == type, "no conversion for {}", dtype_name(type));
  return kRows[index];
}

size_t count_blocks(DType type, size_t elements) {
  const size_t block = static_cast<size_t>(dtype_info(type).block_elements);
  GODWIT_CHECK(elements % block == 0, "{} elements are no whole {} blocks of {}", elements, dtype_name(type), block);
  return elements / block;
}

}  // namespace

void dequantize(DType type, const std::byte* blocks, float* out, size_t elements) {
  row_of(type).dequantize(blocks, out, count_blocks(type, elements));
}

void quantize(DType type, const float* values, std::byte* out, size_t elements) {
  const Row& row = row_of(type);
  const size_t blocks = count_blocks(type, elements);
  if (!is_quantized(type)) return row.quantize(values, out, blocks);

  const DTypeInfo& info = dtype_info(type);
  const size_t size = static_cast<size_t>(info.block_elements);
  std::array<float, kSuperBlock> clean;
  for (size_t i = 0; i < blocks; ++i) {
    for (size_t j = 0; j < size; ++j) {
      const float value = values[i * size + j];
      clean[j] = value == value ? std::clamp(value, -row.limit, row.limit) : 0.0f;
    }
    row.quantize(clean.data(), out + i * static_cast<size_t>(info.block_bytes), 1);
  }
}

}  // namespace godwit
