// Q3_K and Q6_K: 256 values in 16 sub-blocks, each with a small whole scale times one f16.
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_pack.h"
#include "tensor/quant_rows.h"
#include "tensor/quant_search.h"

namespace godwit {
namespace {

constexpr int kSub = 16;
constexpr int kSubs = kSuperBlock / kSub;

// Q3_K: sixteen 6-bit scales plus 32. The low four bits of scale i lie in byte i % 8 (high half from i = 8 on), the
// upper two in byte 8 + i % 4 at bit 2 * (i / 4).
void unpack_q3_scales(const uint8_t* packed, int8_t* scales) {
  for (int i = 0; i < kSubs; ++i) {
    const int low = packed[i % 8] >> (4 * (i / 8)) & 15;
    const int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
    scales[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

void pack_q3_scales(const int8_t* scales, uint8_t* packed) {
  std::fill_n(packed, 12, uint8_t{0});
  for (int i = 0; i < kSubs; ++i) {
    const int code = scales[i] + 32;
    packed[i % 8] = static_cast<uint8_t>(packed[i % 8] | (code & 15) << (4 * (i / 8)));
    packed[8 + i % 4] = static_cast<uint8_t>(packed[8 + i % 4] | (code >> 4) << (2 * (i / 4)));
  }
}

template <int kZeroCode>
void expand(const int8_t* scales, const uint8_t* codes, uint16_t d_bits, float* out) {
  const float d = f16_to_float(d_bits);
  for (int b = 0; b < kSubs; ++b) {
    const float scale = d * static_cast<float>(scales[b]);
    for (int j = b * kSub; j < (b + 1) * kSub; ++j) out[j] = scale * static_cast<float>(codes[j] - kZeroCode);
  }
}

constexpr float kDivisors3[] = {-4, -4.5f, -4.25f, -3.75f, -3.5f, -3.25f, -3, -2.75f, 3, 3.25f, 3.5f, 3.75f, 2.75f};
constexpr float kDivisors6[] = {-32, -33, -32.5f, -31.5f, -31, -30, -29, 31, 31.5f, 32, 30};
constexpr float kSteps3[] = {-32, -31, -30, -29, 31, 30};
constexpr float kSteps6[] = {-128, -126, -124, 127};

}  // namespace

void dequantize_q3_k(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSuperBlock) {
    const auto block = load_block<BlockQ3_K>(blocks + i * sizeof(BlockQ3_K));
    int8_t scales[kSubs];
    uint8_t codes[kSuperBlock];
    unpack_q3_scales(block.scales, scales);
    unpack_crumbs(block.qs, codes);
    unpack_bit_planes<2>(block.hmask, codes);
    expand<4>(scales, codes, block.d, out);
  }
}

void dequantize_q6_k(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSuperBlock) {
    const auto block = load_block<BlockQ6_K>(blocks + i * sizeof(BlockQ6_K));
    uint8_t codes[kSuperBlock], upper[kSuperBlock];
    unpack_nibbles<128, 64>(block.ql, codes);
    unpack_crumbs(block.qh, upper);
    for (int j = 0; j < kSuperBlock; ++j) codes[j] = static_cast<uint8_t>(codes[j] | upper[j] << 4);
    expand<32>(block.scales, codes, block.d, out);
  }
}

void quantize_q3_k(const float* values, std::byte* out, size_t count) {
  using Levels = quant::WholeLevels<-4, 3>;
  for (size_t i = 0; i < count; ++i, values += kSuperBlock) {
    const auto fit = quant::fit_super_block<Levels, kSub, -32, 31>(values, kDivisors3, kSteps3);
    BlockQ3_K block;
    block.d = fit.d;
    pack_q3_scales(fit.scales.data(), block.scales);
    pack_crumbs<0>(fit.codes.data(), block.qs);
    pack_bit_planes<2>(fit.codes.data(), block.hmask);
    store_block(block, out + i * sizeof block);
  }
}

void quantize_q6_k(const float* values, std::byte* out, size_t count) {
  using Levels = quant::WholeLevels<-32, 31>;
  for (size_t i = 0; i < count; ++i, values += kSuperBlock) {
    const auto fit = quant::fit_super_block<Levels, kSub, -128, 127>(values, kDivisors6, kSteps6);
    BlockQ6_K block;
    block.d = fit.d;
    std::copy(fit.scales.begin(), fit.scales.end(), block.scales);
    pack_nibbles<128, 64>(fit.codes.data(), block.ql);
    pack_crumbs<4>(fit.codes.data(), block.qh);
    store_block(block, out + i * sizeof block);
  }
}

}  // namespace godwit
