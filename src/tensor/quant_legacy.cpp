// Q4_0 and Q8_0: 32 values around one f16 scale.
#include <algorithm>
#include <cmath>

#include "tensor/half.h"
#include "tensor/quant_blocks.h"
#include "tensor/quant_rows.h"

namespace godwit {

void dequantize_q4_0(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<BlockQ4_0>(blocks + i * sizeof(BlockQ4_0));
    const float d = f16_to_float(block.d);
    for (int j = 0; j < 16; ++j) out[j] = d * static_cast<float>((block.qs[j] & 15) - 8);
    for (int j = 0; j < 16; ++j) out[j + 16] = d * static_cast<float>((block.qs[j] >> 4) - 8);
  }
}

void dequantize_q8_0(const std::byte* blocks, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i, out += kSmallBlock) {
    const auto block = load_block<BlockQ8_0>(blocks + i * sizeof(BlockQ8_0));
    const float d = f16_to_float(block.d);
    for (int j = 0; j < kSmallBlock; ++j) out[j] = d * static_cast<float>(block.qs[j]);
  }
}

void quantize_q4_0(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    const float extreme =
        *std::max_element(values, values + kSmallBlock, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    BlockQ4_0 block;
    block.d = float_to_f16(extreme / -8);
    const float d = f16_to_float(block.d);
    const float inverse = d != 0 ? 1 / d : 0;
    const auto code = [&](int j) {
      return static_cast<uint8_t>(std::clamp(std::nearbyint(values[j] * inverse) + 8, 0.0f, 15.0f));
    };
    for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
    store_block(block, out + i * sizeof block);
  }
}

void quantize_q8_0(const float* values, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i, values += kSmallBlock) {
    float largest = 0;
    for (int j = 0; j < kSmallBlock; ++j) largest = std::max(largest, std::fabs(values[j]));
    BlockQ8_0 block;
    block.d = float_to_f16(largest / 127);
    const float d = f16_to_float(block.d);
    const float inverse = d != 0 ? 1 / d : 0;
    for (int j = 0; j < kSmallBlock; ++j)
      block.qs[j] = static_cast<int8_t>(std::clamp(std::nearbyint(values[j] * inverse), -127.0f, 127.0f));
    store_block(block, out + i * sizeof block);
  }
}

}  // namespace godwit
