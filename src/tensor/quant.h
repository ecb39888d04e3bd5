// Conversion between floats and every element type: the scalar reference for all kernels, and what `quantize` writes.
//
// Bit layouts are those of GGUF. `elements` is a multiple of the type's block (GODWIT_CHECK); pointers need no
// alignment beyond their type's. Pure functions: rows may be converted on different threads, and a block's bytes depend
// on its own values only.
//
// Block types choose scales for least squared error. NaN quantizes as 0; an infinity, or a value beyond what the type
// can hold, as the largest magnitude it can hold, so no stored scale is ever infinite. f16 and bf16 round to nearest
// even and keep NaN and infinity; i32 rounds to nearest even, saturates, and turns NaN into 0.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"

namespace godwit {

void dequantize(DType type, const std::byte* blocks, float* out, size_t elements);
void quantize(DType type, const float* values, std::byte* out, size_t elements);

}  // namespace godwit
