// Q2_K, Q4_K and Q5_K: 256 values in sub-blocks, each with a small whole scale and minimum times two f16.
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_pack.h"
#include "tensor/quant_rows.h"
#include "tensor/quant_search_affine.h"

namespace godwit {
namespace {

// Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes. The first four of each lie whole in bytes 0-3 and 4-7; of
// the last four, bytes 8-11 hold the low four bits (scale low, minimum high), and the free top bits of bytes 0-7 the
// rest.
struct SixBitPairs {
  uint8_t scales[8];
  uint8_t minima[8];
};

SixBitPairs unpack_six_bit(const uint8_t* packed) {
  SixBitPairs pairs;
  for (int i = 0; i < 4; ++i) {
    pairs.scales[i] = packed[i] & 63;
    pairs.minima[i] = packed[4 + i] & 63;
    pairs.scales[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | (packed[i] >> 6) << 4);
    pairs.minima[4 + i] = static_cast<uint8_t>((packed[8 + i] >> 4) | (packed[4 + i] >> 6) << 4);
  }
  return pairs;
}

void pack_six_bit(const uint8_t* scales, const uint8_t* minima, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | (scales[4 + i] >> 4) << 6);
    packed[4 + i] = static_cast<uint8_t>(minima[i] | (minima[4 + i] >> 4) << 6);
    packed[8 + i] = static_cast<uint8_t>((scales[4 + i] & 15) | (minima[4 + i] & 15) << 4);
  }
}

template <class Block>
void dequantize_six_bit(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSuperBlock) {
    const auto block = load_block<Block>(blocks + i * sizeof(Block));
    const SixBitPairs pairs = unpack_six_bit(block.scales);
    uint8_t codes[kSuperBlock];
    unpack_nibbles<128, 32>(block.qs, codes);
    if constexpr (requires { block.qh; }) unpack_bit_planes<4>(block.qh, codes);
    const float d = f16_to_float(block.d);
    const float dmin = f16_to_float(block.dmin);
    for (int b = 0; b < 8; ++b) {
      const float scale = d * static_cast<float>(pairs.scales[b]);
      const float minimum = dmin * static_cast<float>(pairs.minima[b]);
      for (int j = b * 32; j < (b + 1) * 32; ++j) out[j] = scale * static_cast<float>(codes[j]) - minimum;
    }
  }
}

template <class Block, int kTop>
void quantize_six_bit(const float* values, std::byte* out, size_t count, std::span<const float> stretches) {
  for (size_t i = 0; i < count; ++i, values += kSuperBlock) {
    const auto fit = quant::fit_affine_super_block<kTop, 32, 63>(values, stretches);
    Block block;
    block.d = fit.d;
    block.dmin = fit.dmin;
    pack_six_bit(fit.scales.data(), fit.minima.data(), block.scales);
    pack_nibbles<128, 32>(fit.codes.data(), block.qs);
    if constexpr (requires { block.qh; }) pack_bit_planes<4>(fit.codes.data(), block.qh);
    store_block(block, out + i * sizeof block);
  }
}

constexpr float kStretches2[] = {1, 1.5f, 1.2f, 0.9f, 0.8f, 0.7f, 0.6f};
constexpr float kStretches4[] = {1, 15 / 14.0f, 15 / 13.0f, 0.97f, 0.94f, 0.9f, 0.86f, 0.82f};
constexpr float kStretches5[] = {1, 31 / 30.0f, 31 / 29.0f, 0.98f, 0.96f, 0.94f, 0.9f};

}  // namespace

void dequantize_q2_k(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSuperBlock) {
    const auto block = load_block<BlockQ2_K>(blocks + i * sizeof(BlockQ2_K));
    uint8_t codes[kSuperBlock];
    unpack_crumbs(block.qs, codes);
    const float d = f16_to_float(block.d);
    const float dmin = f16_to_float(block.dmin);
    for (int b = 0; b < 16; ++b) {
      const float scale = d * static_cast<float>(block.scales[b] & 15);
      const float minimum = dmin * static_cast<float>(block.scales[b] >> 4);
      for (int j = b * 16; j < (b + 1) * 16; ++j) out[j] = scale * static_cast<float>(codes[j]) - minimum;
    }
  }
}

void dequantize_q4_k(const std::byte* blocks, float* out, size_t count) {
  dequantize_six_bit<BlockQ4_K>(blocks, out, count);
}
void dequantize_q5_k(const std::byte* blocks, float* out, size_t count) {
  dequantize_six_bit<BlockQ5_K>(blocks, out, count);
}

void quantize_q2_k(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSuperBlock) {
    const auto fit = quant::fit_affine_super_block<3, 16, 15>(values, kStretches2);
    BlockQ2_K block;
    block.d = fit.d;
    block.dmin = fit.dmin;
    for (size_t b = 0; b < 16; ++b) block.scales[b] = static_cast<uint8_t>(fit.scales[b] | fit.minima[b] << 4);
    pack_crumbs<0>(fit.codes.data(), block.qs);
    store_block(block, out + i * sizeof block);
  }
}

void quantize_q4_k(const float* values, std::byte* out, size_t count) {
  quantize_six_bit<BlockQ4_K, 15>(values, out, count, kStretches4);
}
void quantize_q5_k(const float* values, std::byte* out, size_t count) {
  quantize_six_bit<BlockQ5_K, 31>(values, out, count, kStretches5);
}

}  // namespace godwit
