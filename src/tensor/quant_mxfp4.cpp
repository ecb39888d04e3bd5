// MXFP4 (OCP Microscaling Formats 1.0): 32 e2m1 numbers under a power-of-two scale.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_pack.h"
#include "tensor/quant_rows.h"

namespace godwit {
namespace {

// The largest number is 12 * 2^(252 - 128), which a float still holds.
constexpr int kMaxScaleCode = 252;

constexpr float kBoundaries[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};  // between the doubled magnitudes

uint8_t magnitude_code(float magnitude) {
  int code = 0;
  for (const float boundary : kBoundaries) code += magnitude > boundary;
  return static_cast<uint8_t>(code);
}

// Codes of the values under a scale; returns the squared error in units of `unit`, so that no square overflows or
// vanishes.
double encode(const float* x, int scale_code, double unit, uint8_t* codes) {
  // In double: the reciprocals of the smallest scales are no floats.
  const double inverse = std::ldexp(1.0, 128 - scale_code);
  const double scale = std::ldexp(1.0, scale_code - 128) / unit;
  double error = 0;
  for (int j = 0; j < kSmallBlock; ++j) {
    const double v = x[j] * inverse;
    codes[j] = magnitude_code(static_cast<float>(std::fabs(v)));
    const double difference = (std::fabs(v) - kMxfp4Levels[codes[j]]) * scale;
    error += difference * difference;
    if (v < 0 && codes[j] != 0) codes[j] |= 8;
  }
  return error;
}

}  // namespace

void dequantize_mxfp4(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<BlockMXFP4>(blocks + i * sizeof(BlockMXFP4));
    uint8_t codes[kSmallBlock];
    unpack_nibbles<16, 16>(block.qs, codes);
    const float d = e8m0_to_half_float(block.e);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(kMxfp4Levels[codes[j]]);
  }
}

// The scale that keeps the largest value below 8 clips it to 6; the next one spends a bit of everyone else's precision.
// Whichever has the least squared error is taken, and the one below too where a lone outlier is better clipped.
void quantize_mxfp4(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    float largest = 0;
    for (int j = 0; j < kSmallBlock; ++j) largest = std::max(largest, std::fabs(values[j]));
    BlockMXFP4 block{};
    if (largest > 0) {
      const int centre = std::ilogb(largest) - 2 + 127;
      double best_error = std::numeric_limits<double>::infinity();
      for (const int candidate : {centre, centre + 1, centre - 1}) {
        const int code = std::clamp(candidate, 0, kMaxScaleCode);
        uint8_t codes[kSmallBlock];
        const double error = encode(values, code, largest, codes);
        if (error >= best_error) continue;
        best_error = error;
        block.e = static_cast<uint8_t>(code);
        pack_nibbles<16, 16>(codes, block.qs);
      }
    }
    store_block(block, out + i * sizeof block);
  }
}

}  // namespace godwit
