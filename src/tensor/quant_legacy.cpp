// Q4_0, Q5_0, Q8_0: 32 values around one f16 scale. Q4_1, Q5_1: a scale and an offset.
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_pack.h"
#include "tensor/quant_rows.h"
#include "tensor/quant_search.h"
#include "tensor/quant_search_affine.h"

namespace godwit {
namespace {

using quant::Line;
using quant::WholeLevels;

// The fifth bits: bit j of the 32, counted from the lowest of the first byte, belongs to element j.
void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int j = 0; j < kSmallBlock; ++j) codes[j] = static_cast<uint8_t>(codes[j] | (qh[j / 8] >> (j % 8) & 1) << 4);
}

void take_fifth_bits(const uint8_t* codes, uint8_t* qh) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) bits |= (codes[byte * 8 + j] >> 4 & 1) << j;
    qh[byte] = static_cast<uint8_t>(bits);
  }
}

template <class Block>
void unpack(const Block& block, uint8_t* codes) {
  unpack_nibbles<16, 16>(block.qs, codes);
  if constexpr (requires { block.qh; }) add_fifth_bits(block.qh, codes);
}

template <class Block>
void pack(const uint8_t* codes, Block& block) {
  pack_nibbles<16, 16>(codes, block.qs);
  if constexpr (requires { block.qh; }) take_fifth_bits(codes, block.qh);
}

template <class Block, int kZeroCode>
void dequantize_scaled(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<Block>(blocks + i * sizeof(Block));
    uint8_t codes[kSmallBlock];
    unpack(block, codes);
    const float d = f16_to_float(block.d);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(codes[j] - kZeroCode);
  }
}

template <class Block>
void dequantize_affine(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<Block>(blocks + i * sizeof(Block));
    uint8_t codes[kSmallBlock];
    unpack(block, codes);
    const float d = f16_to_float(block.d);
    const float m = f16_to_float(block.m);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(codes[j]) + m;
  }
}

template <class Block, int kZeroCode>
void quantize_scaled(const float* values, std::byte* out, size_t count, std::span<const float> divisors) {
  using Levels = WholeLevels<-kZeroCode, kZeroCode - 1>;
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    Block block;
    const float scale = quant::fit_scale<Levels, kSmallBlock>(values, divisors);
    block.d = quant::nearby_f16_scale<Levels, kSmallBlock>(values, scale);
    uint8_t codes[kSmallBlock];
    quant::encode<Levels, kSmallBlock>(values, f16_to_float(block.d), codes);
    pack(codes, block);
    store_block(block, out + i * sizeof block);
  }
}

template <class Block, int kTop>
void quantize_affine(const float* values, std::byte* out, size_t count, std::span<const float> stretches) {
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    Block block;
    const Line wanted = quant::fit_line<kTop, kSmallBlock, false>(values, stretches);
    const Line line = quant::nearby_f16_line<kTop, kSmallBlock>(values, wanted);
    block.d = float_to_f16(line.scale);
    block.m = float_to_f16(line.offset);
    uint8_t codes[kSmallBlock];
    quant::encode_affine<kTop, kSmallBlock>(values, line, codes);
    pack(codes, block);
    store_block(block, out + i * sizeof block);
  }
}

constexpr float kDivisors4[] = {-8, -9,    -8.75f, -8.5f, -8.25f, -7.75f, -7.5f, -7.25f,
                                -7, -6.5f, 7,      7.25f, 7.5f,   7.75f,  8,     6.5f};
constexpr float kDivisors5[] = {-16, -17, -16.5f, -15.5f, -15, -14.5f, -14, 15, 15.5f, 16, 14.5f, 14};
constexpr float kDivisors8[] = {127, 126, 126.5f, 127.5f, 128, 125};
constexpr float kStretches4[] = {1, 15 / 14.0f, 15 / 13.0f, 0.97f, 0.94f, 0.9f, 0.86f, 0.82f};
constexpr float kStretches5[] = {1, 31 / 30.0f, 31 / 29.0f, 0.98f, 0.96f, 0.94f, 0.9f};

}  // namespace

void dequantize_q4_0(const std::byte* blocks, float* out, size_t count) {
  dequantize_scaled<BlockQ4_0, 8>(blocks, out, count);
}
void dequantize_q5_0(const std::byte* blocks, float* out, size_t count) {
  dequantize_scaled<BlockQ5_0, 16>(blocks, out, count);
}
void dequantize_q4_1(const std::byte* blocks, float* out, size_t count) {
  dequantize_affine<BlockQ4_1>(blocks, out, count);
}
void dequantize_q5_1(const std::byte* blocks, float* out, size_t count) {
  dequantize_affine<BlockQ5_1>(blocks, out, count);
}

void dequantize_q8_0(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<BlockQ8_0>(blocks + i * sizeof(BlockQ8_0));
    const float d = f16_to_float(block.d);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(block.qs[j]);
  }
}

void quantize_q4_0(const float* values, std::byte* out, size_t count) {
  quantize_scaled<BlockQ4_0, 8>(values, out, count, kDivisors4);
}
void quantize_q5_0(const float* values, std::byte* out, size_t count) {
  quantize_scaled<BlockQ5_0, 16>(values, out, count, kDivisors5);
}
void quantize_q4_1(const float* values, std::byte* out, size_t count) {
  quantize_affine<BlockQ4_1, 15>(values, out, count, kStretches4);
}
void quantize_q5_1(const float* values, std::byte* out, size_t count) {
  quantize_affine<BlockQ5_1, 31>(values, out, count, kStretches5);
}

// The code -128 stays unused, so that kernels may negate codes.
void quantize_q8_0(const float* values, std::byte* out, size_t count) {
  using Levels = WholeLevels<-127, 127>;
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    BlockQ8_0 block;
    const float scale = quant::fit_scale<Levels, kSmallBlock>(values, kDivisors8);
    block.d = quant::nearby_f16_scale<Levels, kSmallBlock>(values, std::fabs(scale));
    const float inverse = quant::inverse_of(f16_to_float(block.d));
    for (int j = 0; j < kSmallBlock; ++j) block.qs[j] = static_cast<int8_t>(Levels::nearest(values[j] * inverse));
    store_block(block, out + i * sizeof block);
  }
}

}  // namespace godwit
