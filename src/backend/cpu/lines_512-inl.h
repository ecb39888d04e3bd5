// Lines of strips (strip_layouts.h) in AVX-512: four bytes, or a float, of each of sixteen rows are a vector. lines_256
// has the same names for AVX2; a source includes one of the two, and then what is written for both. With
// GODWIT_WITHOUT_VNNI defined, sums are made in pairs.
#pragma once

#include "backend/cpu/avx512_vectors.h"
#include "backend/cpu/int8_x.h"

#ifdef GODWIT_WITHOUT_VNNI
#define GODWIT_LINES_BEGIN GODWIT_AVX3_BEGIN
#define GODWIT_LINES_END GODWIT_AVX3_END
#else
#define GODWIT_LINES_BEGIN GODWIT_AVX512_BEGIN
#define GODWIT_LINES_END GODWIT_AVX512_END
#endif

GODWIT_LINES_BEGIN
namespace godwit::cpu {
namespace {

using Line = __m512i;
using Floats = __m512;

HWY_INLINE Line line_at(const std::byte* unit, size_t line) {
  return _mm512_loadu_si512(unit + 64 * line);
}
HWY_INLINE Line bits(Line v, int mask) {
  return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask)));
}
// (v & mask) | low
HWY_INLINE Line bits_or(Line v, int mask, Line low) {
  return _mm512_ternarylogic_epi32(v, _mm512_set1_epi8(static_cast<char>(mask)), low, 0xEA);
}
// Halves of lanes, to the right, or to the left where kBits is below 0.
template <int kBits>
HWY_INLINE Line shifted(Line v) {
  if constexpr (kBits == 0) return v;
  return kBits > 0 ? _mm512_srli_epi16(v, kBits > 0 ? kBits : 0) : _mm512_slli_epi16(v, kBits > 0 ? 0 : -kBits);
}

// Of a table of sixteen, the bytes that codes of up to 15 name.
HWY_INLINE Line bytes_of(const uint8_t (&table)[16], Line codes) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), codes);
}

// Of each lane, `mask` of what is left of it.
HWY_INLINE Line lane_bits(Line v, unsigned shift, int mask) {
  return _mm512_and_si512(_mm512_srli_epi32(v, shift), _mm512_set1_epi32(mask));
}
HWY_INLINE Line either(Line a, Line b) {
  return _mm512_or_si512(a, b);
}
HWY_INLINE Line lanes_shifted_4(Line v) {
  return _mm512_slli_epi32(v, 4);
}
// Of each lane, one of its bytes, signed.
HWY_INLINE Line lane_byte(Line v, size_t byte) {
  return _mm512_srai_epi32(_mm512_slli_epi32(v, static_cast<unsigned>(24 - 8 * byte)), 24);
}

HWY_INLINE Floats to_floats(Line v) {
  return _mm512_cvtepi32_ps(v);
}
// Sixteen numbers of f16; those in the lower halves of lanes, and in the upper.
HWY_INLINE Floats f16_at(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
HWY_INLINE Floats lower_f16(Line v) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}
HWY_INLINE Floats upper_f16(Line v) {
  return lower_f16(_mm512_srli_epi32(v, 16));
}

// Sixteen bytes e: 2^(e - 128), below the normal numbers for e < 2.
HWY_INLINE Floats halved_e8m0_at(const std::byte* from) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}

HWY_INLINE Floats zero_floats() {
  return _mm512_setzero_ps();
}
HWY_INLINE Floats add(Floats a, Floats b) {
  return _mm512_add_ps(a, b);
}
HWY_INLINE Floats sub(Floats a, float b) {
  return _mm512_sub_ps(a, _mm512_set1_ps(b));
}
HWY_INLINE Floats mul(Floats a, Floats b) {
  return _mm512_mul_ps(a, b);
}
HWY_INLINE Floats mul(Floats a, float b) {
  return _mm512_mul_ps(a, _mm512_set1_ps(b));
}
HWY_INLINE Floats mul_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
HWY_INLINE Floats mul_add(Floats a, float b, Floats c) {
  return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c);
}
HWY_INLINE void store(Floats v, float* to) {
  _mm512_storeu_ps(to, v);
}

#ifdef GODWIT_WITHOUT_VNNI

// What sums of pairs are made of (pair_sums-inl.h).
using Values = __m512i;
using Signs = __mmask64;
HWY_INLINE Values four_everywhere(const int8_t* x) {
  return _mm512_set1_epi32(load_4(x));
}
HWY_INLINE Line all_lanes(int32_t value) {
  return _mm512_set1_epi32(value);
}
HWY_INLINE Line less_bytes(Line v, int constant) {
  return _mm512_sub_epi8(v, _mm512_set1_epi8(static_cast<char>(constant)));
}
HWY_INLINE Line magnitudes_of(Line v) {
  return _mm512_abs_epi8(v);
}
HWY_INLINE Signs signs_of(Line v) {
  return _mm512_movepi8_mask(v);
}
HWY_INLINE Line pair_products(Line codes, Values x) {
  return _mm512_maddubs_epi16(codes, x);
}
HWY_INLINE Line pair_products(Line magnitudes, Signs signs, Values x) {
  return _mm512_maddubs_epi16(magnitudes, _mm512_mask_sub_epi8(x, signs, _mm512_setzero_si512(), x));
}
HWY_INLINE Line widened(Line pairs) {
  return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
HWY_INLINE Line add_16(Line a, Line b) {
  return _mm512_add_epi16(a, b);
}
HWY_INLINE Line add_32(Line a, Line b) {
  return _mm512_add_epi32(a, b);
}
HWY_INLINE void keep_in_registers(Line& v) {
  asm("" : "+v"(v));
}

#else

// The sum of a group's products with the codes of one row of x, four by four, and of the row's bias, which both ends
// are told.
template <class Type>
class WholeSums {
 public:
  using Codes = Line;
  static HWY_INLINE Codes prepare(Line codes) { return codes; }

  HWY_INLINE void start(int32_t bias) {
    sums_ = Type::kX.constant != 0 ? _mm512_set1_epi32(bias) : _mm512_setzero_si512();
  }
  HWY_INLINE void add_four(Codes codes, const int8_t* x) {
    sums_ = _mm512_dpbusd_epi32(sums_, codes, _mm512_set1_epi32(load_4(x)));
  }
  HWY_INLINE Line total(int32_t) const { return sums_; }

 private:
  Line sums_;
};

#endif

}  // namespace
}  // namespace godwit::cpu
GODWIT_LINES_END

#ifdef GODWIT_WITHOUT_VNNI
#include "backend/cpu/pair_sums-inl.h"
#endif
