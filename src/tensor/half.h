// Small floating-point formats in integers: IEEE binary16 (f16), bfloat16 (bf16) and the power-of-two scale e8m0.
//
// To float is exact for every bit pattern. From float rounds to nearest, ties to even, through the subnormals; what is
// beyond the largest finite number becomes infinity, as IEEE 754 has it. NaN stays NaN, quiet, with its sign and the
// leading bits of its payload. Pure functions, without branches where loops over them should vectorise; none depends on
// the processor keeping float subnormals.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace godwit {

inline constexpr float kF16Max = 65504.0f;
inline constexpr float kF16MinNormal = 0x1p-14f;
inline constexpr float kF16MinSubnormal = 0x1p-24f;

inline float f16_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t rebias = magnitude >= 0x7c00u ? (255u - 31u) << 23 : (127u - 15u) << 23;
  const uint32_t normal = (magnitude << 13) + rebias;
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? subnormal : normal));
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Half a unit in the last kept place, less one when that place is even. Carries run into the exponent as they should.
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // 0.5 has the spacing 2^-24 of f16 subnormals: the addition rounds for us.
  const uint32_t small = magnitude < 0x38800000u ? magnitude : 0u;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(small) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<uint16_t>(sign | half);
}

inline float bf16_to_float(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// 2^(code - 128) for every code: the scale of a GGUF MXFP4 block, whose values are stored doubled. 255 is no NaN there.
inline float e8m0_to_half_float(uint8_t code) {
  const uint32_t bits = code < 2 ? 0x00200000u << code : static_cast<uint32_t>(code - 1) << 23;
  return std::bit_cast<float>(bits);
}

}  // namespace godwit
