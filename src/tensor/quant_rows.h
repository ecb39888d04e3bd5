// Inside src/tensor: the conversion functions that quant.cpp puts into its table, one file per group of types.
//
// `count` is in blocks. The quantizers get finite values no larger than the type's limit (see quant.cpp).
#pragma once

#include <cstddef>

namespace godwit {

using DequantizeBlocks = void (*)(const std::byte* blocks, float* out, size_t count);
using QuantizeBlocks = void (*)(const float* values, std::byte* out, size_t count);

// quant_legacy.cpp
void dequantize_q4_0(const std::byte* blocks, float* out, size_t count);
void dequantize_q4_1(const std::byte* blocks, float* out, size_t count);
void dequantize_q5_0(const std::byte* blocks, float* out, size_t count);
void dequantize_q5_1(const std::byte* blocks, float* out, size_t count);
void dequantize_q8_0(const std::byte* blocks, float* out, size_t count);
void quantize_q4_0(const float* values, std::byte* out, size_t count);
void quantize_q4_1(const float* values, std::byte* out, size_t count);
void quantize_q5_0(const float* values, std::byte* out, size_t count);
void quantize_q5_1(const float* values, std::byte* out, size_t count);
void quantize_q8_0(const float* values, std::byte* out, size_t count);

// quant_k_affine.cpp: sub-blocks with a scale and a minimum
void dequantize_q2_k(const std::byte* blocks, float* out, size_t count);
void dequantize_q4_k(const std::byte* blocks, float* out, size_t count);
void dequantize_q5_k(const std::byte* blocks, float* out, size_t count);
void quantize_q2_k(const float* values, std::byte* out, size_t count);
void quantize_q4_k(const float* values, std::byte* out, size_t count);
void quantize_q5_k(const float* values, std::byte* out, size_t count);

// quant_k.cpp: sub-blocks with a scale
void dequantize_q3_k(const std::byte* blocks, float* out, size_t count);
void dequantize_q6_k(const std::byte* blocks, float* out, size_t count);
void quantize_q3_k(const float* values, std::byte* out, size_t count);
void quantize_q6_k(const float* values, std::byte* out, size_t count);

// quant_iq4.cpp
void dequantize_iq4_nl(const std::byte* blocks, float* out, size_t count);
void dequantize_iq4_xs(const std::byte* blocks, float* out, size_t count);
void quantize_iq4_nl(const float* values, std::byte* out, size_t count);
void quantize_iq4_xs(const float* values, std::byte* out, size_t count);

// quant_mxfp4.cpp
void dequantize_mxfp4(const std::byte* blocks, float* out, size_t count);
void quantize_mxfp4(const float* values, std::byte* out, size_t count);

}  // namespace godwit
