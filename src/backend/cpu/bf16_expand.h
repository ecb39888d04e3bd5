// Rows of weights as bf16 numbers: what dequantize() gives, rounded to nearest even. Needs has_avx512_bf16().
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace godwit::cpu {

inline constexpr size_t kBf16Block = 32;  // values of a 64-byte vector

// Where a row's values go: block i of 32 to `to + i * stride`, both multiples of 32.
struct Bf16Blocks {
  uint16_t* to;
  size_t stride;
};

// Writes values [k, k + count) of a weight row; the last block is filled up with zeros. k is a multiple of 256, and so
// is count unless the row ends there. While a byte is read, the one `ahead` bytes further on is prefetched.
using ExpandRow = void (*)(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out);

// For every type of weights but f32 and i32.
ExpandRow expand_row_to_bf16(DType dtype);

}  // namespace godwit::cpu
