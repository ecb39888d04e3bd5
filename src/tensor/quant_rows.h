// Inside src/tensor: the conversion functions that quant.cpp puts into its table, one file per group of types.
//
// `count` is in blocks. The quantizers get finite values no larger than the type's limit (see quant.cpp).
#pragma once

#include <cstddef>

namespace godwit {

using DequantizeBlocks = void (*)(const std::byte* blocks, float* out, size_t count);
using QuantizeBlocks = void (*)(const float* values, std::byte* out, size_t count);

void dequantize_q4_0(const std::byte* blocks, float* out, size_t count);
void dequantize_q8_0(const std::byte* blocks, float* out, size_t count);
void quantize_q4_0(const float* values, std::byte* out, size_t count);
void quantize_q8_0(const float* values, std::byte* out, size_t count);

}  // namespace godwit
