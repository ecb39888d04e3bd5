// Rows of weights as bf16 numbers: what dequantize() gives, rounded to nearest even. Needs has_avx512_bf16().
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace godwit::cpu {

inline constexpr size_t kBf16Block = 32;  // values of a 64-byte vector

// Values [k, k + count) of `rows` weight rows. k is a multiple of 256, and so is count unless the rows end there. While
// a byte is read, the one `ahead` bytes further on is prefetched.
struct WeightRows {
  const std::byte* first;
  size_t stride, rows;
  size_t k, count;
  ptrdiff_t ahead;
};

// Writes block i of row r to line i * panel_rows + r of the panel; the last block is filled up with zeros.
using ExpandRows = void (*)(const WeightRows& weights, void* panel, size_t panel_rows);
// For every type of weights but f32 and i32.
ExpandRows expand_rows_to_bf16(DType dtype);
// From a strip, for quantized types that have them (int8_dot.h): its values as tiles (tile_panel.h).
ExpandRows expand_strips_to_bf16(DType dtype);

// The sums that AVX-512's kernel gets from a panel, straight from registers: four whole weight rows of 16 bits, of
// which the last may be missing, with one or two rows of x, packed as [block][x row][32]; sums[x row][4].
using DotRows = void (*)(const WeightRows& weights, const uint16_t* x, float* sums);
inline constexpr size_t kDotXRows = 2;
DotRows dot_rows_in_bf16(DType dtype, size_t x_rows);

}  // namespace godwit::cpu
