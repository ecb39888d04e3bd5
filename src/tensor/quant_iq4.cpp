// IQ4_NL and IQ4_XS: 4-bit codes that name one of 16 unevenly spaced levels.
#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_pack.h"
#include "tensor/quant_rows.h"
#include "tensor/quant_search.h"

namespace godwit {
namespace {

constexpr int kSub = 32;
constexpr int kSubs = kSuperBlock / kSub;

// The boundaries between levels are multiples of one half, so the half that a value lies in says its code.
constexpr int kHalves = 512;

constexpr std::array<uint8_t, kHalves> make_nearest_codes() {
  std::array<uint8_t, kHalves> codes{};
  uint8_t code = 0;
  for (int half = 0; half < kHalves; ++half) {
    const int low = half - kHalves / 2;  // twice the lower end of this half
    while (code < 15 && low >= kIq4Levels[code] + kIq4Levels[code + 1]) ++code;
    codes[static_cast<size_t>(half)] = code;
  }
  return codes;
}

constexpr std::array<uint8_t, kHalves> kNearestCodes = make_nearest_codes();

constexpr std::array<float, kHalves> make_nearest_levels() {
  std::array<float, kHalves> levels{};
  for (size_t i = 0; i < kHalves; ++i) levels[i] = kIq4Levels[kNearestCodes[i]];
  return levels;
}

constexpr std::array<float, kHalves> kNearestLevels = make_nearest_levels();

struct Iq4Levels {
  static float nearest(float v) {
    return kNearestLevels[static_cast<size_t>(static_cast<int>(quant::bound(v, -127, 127) * 2 + kHalves / 2))];
  }
  static quant::Lanes nearest(quant::Lanes v) {
    return quant::Lanes{nearest(v[0]), nearest(v[1]), nearest(v[2]), nearest(v[3])};
  }
  static uint8_t code(float level) {
    return kNearestCodes[static_cast<size_t>(static_cast<int>(level) * 2 + kHalves / 2)];
  }
};

constexpr float kDivisors[] = {-127, -136, -131, -122, -117, -112, -107, -101, -95, 113, 118, 123, 108, 102, 96};
constexpr float kSteps[] = {-32, -31, -30, 31};

}  // namespace

void dequantize_iq4_nl(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<BlockIQ4_NL>(blocks + i * sizeof(BlockIQ4_NL));
    uint8_t codes[kSmallBlock];
    unpack_nibbles<16, 16>(block.qs, codes);
    const float d = f16_to_float(block.d);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(kIq4Levels[codes[j]]);
  }
}

void dequantize_iq4_xs(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSuperBlock) {
    const auto block = load_block<BlockIQ4_XS>(blocks + i * sizeof(BlockIQ4_XS));
    uint8_t codes[kSuperBlock];
    unpack_nibbles<128, 16>(block.qs, codes);
    const float d = f16_to_float(block.d);
    for (int b = 0; b < kSubs; ++b) {
      const int low = block.scales_l[b / 2] >> (4 * (b % 2)) & 15;
      const int high = block.scales_h >> (2 * b) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      for (int j = b * kSub; j < (b + 1) * kSub; ++j) out[j] = scale * static_cast<float>(kIq4Levels[codes[j]]);
    }
  }
}

void quantize_iq4_nl(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    BlockIQ4_NL block;
    const float scale = quant::fit_scale<Iq4Levels, kSmallBlock>(values, kDivisors);
    block.d = quant::nearby_f16_scale<Iq4Levels, kSmallBlock>(values, scale);
    uint8_t codes[kSmallBlock];
    quant::encode<Iq4Levels, kSmallBlock>(values, f16_to_float(block.d), codes);
    pack_nibbles<16, 16>(codes, block.qs);
    store_block(block, out + i * sizeof block);
  }
}

void quantize_iq4_xs(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSuperBlock) {
    const auto fit = quant::fit_super_block<Iq4Levels, kSub, -32, 31>(values, kDivisors, kSteps);
    BlockIQ4_XS block{};
    block.d = fit.d;
    for (int b = 0; b < kSubs; ++b) {
      const int code = fit.scales[static_cast<size_t>(b)] + 32;
      block.scales_l[b / 2] = static_cast<uint8_t>(block.scales_l[b / 2] | (code & 15) << (4 * (b % 2)));
      block.scales_h = static_cast<uint16_t>(block.scales_h | (code >> 4) << (2 * b));
    }
    pack_nibbles<128, 16>(fit.codes.data(), block.qs);
    store_block(block, out + i * sizeof block);
  }
}

}  // namespace godwit
