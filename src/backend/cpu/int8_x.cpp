#include "backend/cpu/int8_x.h"

#include "backend/cpu/bf16_vectors.h"

namespace godwit::cpu {
namespace {

GODWIT_BF16_BEGIN

struct Block {
  __m512 low, high;
};

HWY_INLINE Block load_block(const float* from, size_t count) {
  if (count >= 32) return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
  return {_mm512_maskz_loadu_ps(first_floats(count), from),
          count > 16 ? _mm512_maskz_loadu_ps(first_floats(count - 16), from + 16) : _mm512_setzero_ps()};
}

// Compared as whole numbers, magnitudes keep their order, and NaN is the largest.
HWY_INLINE uint32_t magnitude_bits(const Block& block) {
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  const __m512i both = _mm512_max_epu32(_mm512_andnot_si512(sign, _mm512_castps_si512(block.low)),
                                        _mm512_andnot_si512(sign, _mm512_castps_si512(block.high)));
  const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
  __m128i rest = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0x4E));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(rest));
}

HWY_INLINE void store_codes(__m512 values, __m512 inverse, int8_t* to) {
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values, inverse))));
}

// The sums of the 16 values at each of the 16 places.
HWY_INLINE __m512i sums_of(const int8_t* codes) {
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_load_si512(codes + 64 * i));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_epi32(sum, _MM_PERM_CDAB));
    all = _mm512_mask_mov_epi32(all, static_cast<__mmask16>(0x1111 << i), sum);
  }
  // Lane 4 g + i has place 4 i + g.
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
}

void quantize_unit(const float* x, size_t count, const XLayout& layout, XUnit& to) {
  Block blocks[8];
  alignas(32) uint32_t magnitudes[8];
#pragma GCC unroll 8
  for (size_t b = 0; b < 8; ++b) {
    blocks[b] = load_block(x + 32 * b, count > 32 * b ? count - 32 * b : 0);
    magnitudes[b] = magnitude_bits(blocks[b]);
  }
  const __m256 largest = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(magnitudes)));
  const __mmask8 counts = _mm256_cmp_ps_mask(largest, _mm256_set1_ps(1e-30F), _CMP_NLT_UQ);  // NaN does
  const __m256 scales = _mm256_maskz_div_ps(counts, largest, _mm256_set1_ps(127));
  alignas(32) float inverses[8];
  _mm256_store_ps(inverses, _mm256_maskz_div_ps(counts, _mm256_set1_ps(127), largest));
#pragma GCC unroll 8
  for (size_t b = 0; b < 8; ++b) {
    const __m512 inverse = _mm512_set1_ps(inverses[b]);
    store_codes(blocks[b].low, inverse, to.codes + 16 * layout.places[2 * b]);
    store_codes(blocks[b].high, inverse, to.codes + 16 * layout.places[2 * b + 1]);
  }
  const __m512i places = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(layout.places)));
  __m512i sums = _mm512_permutexvar_epi32(places, sums_of(to.codes));  // of sixteens, in order
  const __m512i in_order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512 group_scales = _mm512_zextps256_ps512(scales);
  if (layout.groups == 16) {
    group_scales = _mm512_permutexvar_ps(_mm512_srli_epi32(in_order, 1), group_scales);
  } else {
    const __m512i evens = _mm512_slli_epi32(in_order, 1), odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    sums = _mm512_add_epi32(_mm512_permutexvar_epi32(evens, sums), _mm512_permutexvar_epi32(odds, sums));
  }
  _mm512_store_ps(to.scales, group_scales);
  _mm512_store_si512(to.biases, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-layout.constant)));
  const __m512 sign = _mm512_set1_ps(static_cast<float>(layout.offsets));
  _mm512_store_ps(to.offsets, _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), group_scales), sign));
}

GODWIT_BF16_END

}  // namespace

void quantize_x(const float* x, size_t in, const XLayout& layout, XUnit* to) {
  for (size_t k = 0; k < in; k += kUnitValues) quantize_unit(x + k, in - k, layout, *to++);
}

}  // namespace godwit::cpu
