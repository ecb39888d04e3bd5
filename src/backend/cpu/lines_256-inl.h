// Lines of strips (strip_layouts.h) in AVX2: as lines_512, in two vectors each. With GODWIT_WITH_AVX_VNNI defined, sums
// are made by vpdpbusd.
#pragma once

#include "backend/cpu/avx2_vectors.h"
#include "backend/cpu/int8_x.h"

#ifdef GODWIT_WITH_AVX_VNNI
#define GODWIT_LINES_BEGIN GODWIT_AVX_VNNI_BEGIN
#define GODWIT_LINES_END GODWIT_AVX_VNNI_END
#else
#define GODWIT_LINES_BEGIN GODWIT_AVX2_BEGIN
#define GODWIT_LINES_END GODWIT_AVX2_END
#endif

GODWIT_LINES_BEGIN
namespace godwit::cpu {
namespace {

struct Line {
  __m256i low, high;
};
struct Floats {
  __m256 low, high;
};

HWY_INLINE __m256i load_32(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HWY_INLINE Line line_at(const std::byte* unit, size_t line) {
  return {load_32(unit + 64 * line), load_32(unit + 64 * line + 32)};
}
HWY_INLINE Line bits(Line v, int mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(v.low, m), _mm256_and_si256(v.high, m)};
}
HWY_INLINE Line either(Line a, Line b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
HWY_INLINE Line bits_or(Line v, int mask, Line low) {
  return either(bits(v, mask), low);
}
template <int kBits>
HWY_INLINE Line shifted(Line v) {
  if constexpr (kBits == 0) return v;
  if constexpr (kBits > 0) return {_mm256_srli_epi16(v.low, kBits), _mm256_srli_epi16(v.high, kBits)};
  return {_mm256_slli_epi16(v.low, -kBits), _mm256_slli_epi16(v.high, -kBits)};
}

HWY_INLINE Line bytes_of(const uint8_t (&table)[16], Line codes) {
  const __m256i all = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(all, codes.low), _mm256_shuffle_epi8(all, codes.high)};
}

HWY_INLINE Line lane_bits(Line v, unsigned shift, int mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  const auto n = static_cast<int>(shift);
  return {_mm256_and_si256(_mm256_srli_epi32(v.low, n), m), _mm256_and_si256(_mm256_srli_epi32(v.high, n), m)};
}
HWY_INLINE Line lanes_shifted_4(Line v) {
  return {_mm256_slli_epi32(v.low, 4), _mm256_slli_epi32(v.high, 4)};
}
HWY_INLINE Line lane_byte(Line v, size_t byte) {
  const auto n = static_cast<int>(24 - 8 * byte);
  return {_mm256_srai_epi32(_mm256_slli_epi32(v.low, n), 24), _mm256_srai_epi32(_mm256_slli_epi32(v.high, n), 24)};
}

HWY_INLINE Floats to_floats(Line v) {
  return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
}
HWY_INLINE Floats f16_of(__m256i v) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
}
HWY_INLINE Floats f16_at(const std::byte* from) {
  return f16_of(load_32(from));
}
HWY_INLINE Floats narrow_f16(Line v) {  // lanes below 2^16
  return f16_of(_mm256_permute4x64_epi64(_mm256_packus_epi32(v.low, v.high), 0xD8));
}
HWY_INLINE Floats lower_f16(Line v) {
  return narrow_f16(lane_bits(v, 0, 0xFFFF));
}
HWY_INLINE Floats upper_f16(Line v) {
  return narrow_f16(lane_bits(v, 16, 0xFFFF));
}

HWY_INLINE __m256 halved_e8m0(__m256i e) {
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
HWY_INLINE Floats halved_e8m0_at(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {halved_e8m0(_mm256_cvtepu8_epi32(bytes)), halved_e8m0(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

HWY_INLINE Floats zero_floats() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
HWY_INLINE Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
HWY_INLINE Floats sub(Floats a, float b) {
  return {_mm256_sub_ps(a.low, _mm256_set1_ps(b)), _mm256_sub_ps(a.high, _mm256_set1_ps(b))};
}
HWY_INLINE Floats mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
HWY_INLINE Floats mul(Floats a, float b) {
  return mul(a, Floats{_mm256_set1_ps(b), _mm256_set1_ps(b)});
}
HWY_INLINE Floats mul_add(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
HWY_INLINE Floats mul_add(Floats a, float b, Floats c) {
  return mul_add(a, Floats{_mm256_set1_ps(b), _mm256_set1_ps(b)}, c);
}
HWY_INLINE void store(Floats v, float* to) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}

#ifdef GODWIT_WITH_AVX_VNNI

template <class Type>
class WholeSums {
 public:
  using Codes = Line;
  static HWY_INLINE Codes prepare(Line codes) { return codes; }

  HWY_INLINE void start(int32_t bias) { low_ = high_ = _mm256_set1_epi32(Type::kX.constant != 0 ? bias : 0); }
  HWY_INLINE void add_four(Codes codes, const int8_t* x) {
    const __m256i values = _mm256_set1_epi32(load_4(x));
    low_ = _mm256_dpbusd_avx_epi32(low_, codes.low, values);
    high_ = _mm256_dpbusd_avx_epi32(high_, codes.high, values);
  }
  HWY_INLINE Line total(int32_t) const { return {low_, high_}; }

 private:
  __m256i low_, high_;
};

#else

// What sums of pairs are made of (pair_sums-inl.h).
using Values = __m256i;
using Signs = Line;
HWY_INLINE Values four_everywhere(const int8_t* x) {
  return _mm256_set1_epi32(load_4(x));
}
HWY_INLINE Line all_lanes(int32_t value) {
  const __m256i v = _mm256_set1_epi32(value);
  return {v, v};
}
HWY_INLINE Line less_bytes(Line v, int constant) {
  const __m256i c = _mm256_set1_epi8(static_cast<char>(constant));
  return {_mm256_sub_epi8(v.low, c), _mm256_sub_epi8(v.high, c)};
}
HWY_INLINE Line magnitudes_of(Line v) {
  return {_mm256_abs_epi8(v.low), _mm256_abs_epi8(v.high)};
}
HWY_INLINE Signs signs_of(Line v) {
  return v;
}
HWY_INLINE Line pair_products(Line codes, Values x) {
  return {_mm256_maddubs_epi16(codes.low, x), _mm256_maddubs_epi16(codes.high, x)};
}
HWY_INLINE Line pair_products(Line magnitudes, Signs signs, Values x) {
  return {_mm256_maddubs_epi16(magnitudes.low, _mm256_sign_epi8(x, signs.low)),
          _mm256_maddubs_epi16(magnitudes.high, _mm256_sign_epi8(x, signs.high))};
}
HWY_INLINE Line widened(Line pairs) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(pairs.low, ones), _mm256_madd_epi16(pairs.high, ones)};
}
HWY_INLINE Line add_16(Line a, Line b) {
  return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
}
HWY_INLINE Line add_32(Line a, Line b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
HWY_INLINE void keep_in_registers(Line& v) {
  asm("" : "+x"(v.low));
  asm("" : "+x"(v.high));
}

#endif

}  // namespace
}  // namespace godwit::cpu
GODWIT_LINES_END

#ifndef GODWIT_WITH_AVX_VNNI
#include "backend/cpu/pair_sums-inl.h"
#endif
