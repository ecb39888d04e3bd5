#include "backend/cpu/int8_x.h"

#include <algorithm>

#include "backend/cpu/avx2_vectors.h"

namespace godwit::cpu {
namespace {

GODWIT_AVX2_BEGIN

struct Block {
  __m256 at[4];
};

HWY_INLINE Block load_block(const float* from) {
  return {{_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), _mm256_loadu_ps(from + 16), _mm256_loadu_ps(from + 24)}};
}

// Compared as whole numbers, magnitudes keep their order, and NaN is the largest.
HWY_INLINE __m256i magnitude_bits(__m256 values) {
  return _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(INT32_MAX));
}
HWY_INLINE int32_t largest_bits(const Block& block) {
  const __m256i all = _mm256_max_epu32(_mm256_max_epu32(magnitude_bits(block.at[0]), magnitude_bits(block.at[1])),
                                       _mm256_max_epu32(magnitude_bits(block.at[2]), magnitude_bits(block.at[3])));
  __m128i rest = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0x4E));
  rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0xB1));
  return _mm_cvtsi128_si32(rest);
}

HWY_INLINE __m256i whole(__m256 values, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(values, inverse));
}
// In order: each instruction packs the halves of a vector by themselves.
HWY_INLINE __m256i codes_of(const Block& block, float factor) {
  const __m256 inverse = _mm256_set1_ps(factor);
  const __m256i first = _mm256_packs_epi32(whole(block.at[0], inverse), whole(block.at[1], inverse));
  const __m256i second = _mm256_packs_epi32(whole(block.at[2], inverse), whole(block.at[3], inverse));
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of four neighbours.
HWY_INLINE __m256i sums_of_fours(__m256i codes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1));
}
// Of four blocks: the sums of their first halves, then of their second.
HWY_INLINE __m256i sums_of_halves(const __m256i (&fours)[8], size_t first) {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(fours[first], fours[first + 1]),
                           _mm256_hadd_epi32(fours[first + 2], fours[first + 3]));
}

// Eight groups from one on.
HWY_INLINE void store_groups(__m256i sums, __m256 scales, const XLayout& layout, size_t from, XUnit& to) {
  _mm256_store_ps(to.scales + from, scales);
  _mm256_store_si256(reinterpret_cast<__m256i*>(to.biases + from),
                     _mm256_mullo_epi32(sums, _mm256_set1_epi32(-layout.constant)));
  const __m256 sign = _mm256_set1_ps(static_cast<float>(layout.offsets));
  _mm256_store_ps(to.offsets + from, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), scales), sign));
}

void quantize_unit(const float* x, const XLayout& layout, XUnit& to) {
  alignas(32) int32_t magnitudes[8];
#pragma GCC unroll 8
  for (size_t b = 0; b < 8; ++b) magnitudes[b] = largest_bits(load_block(x + 32 * b));
  const __m256 largest = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(magnitudes)));
  const __m256 counts = _mm256_cmp_ps(largest, _mm256_set1_ps(1e-30F), _CMP_NLT_UQ);  // NaN does
  const __m256 lost = _mm256_sub_ps(largest, largest);  // NaN where it is not finite: codes then mean nothing
  const __m256 scales = _mm256_add_ps(lost, _mm256_and_ps(counts, _mm256_div_ps(largest, _mm256_set1_ps(127))));
  alignas(32) float inverses[8];
  _mm256_store_ps(inverses, _mm256_and_ps(counts, _mm256_div_ps(_mm256_set1_ps(127), largest)));
  __m256i fours[8];
#pragma GCC unroll 8
  for (size_t b = 0; b < 8; ++b) {
    const __m256i codes = codes_of(load_block(x + 32 * b), inverses[b]);
    _mm_store_si128(reinterpret_cast<__m128i*>(to.codes + 16 * layout.places[2 * b]), _mm256_castsi256_si128(codes));
    _mm_store_si128(reinterpret_cast<__m128i*>(to.codes + 16 * layout.places[2 * b + 1]),
                    _mm256_extracti128_si256(codes, 1));
    fours[b] = sums_of_fours(codes);
  }
  const __m256i a = sums_of_halves(fours, 0), b = sums_of_halves(fours, 4);
  const __m256i first = _mm256_permute2x128_si256(a, b, 0x20), second = _mm256_permute2x128_si256(a, b, 0x31);
  if (layout.groups == 8) {
    store_groups(_mm256_add_epi32(first, second), scales, layout, 0, to);
    return store_groups(_mm256_setzero_si256(), _mm256_setzero_ps(), layout, 8, to);
  }
  // Halves in turn, and each block's scale twice.
  const __m256i low = _mm256_unpacklo_epi32(first, second), high = _mm256_unpackhi_epi32(first, second);
  const __m256 low_scales = _mm256_unpacklo_ps(scales, scales), high_scales = _mm256_unpackhi_ps(scales, scales);
  store_groups(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2f128_ps(low_scales, high_scales, 0x20),
               layout, 0, to);
  store_groups(_mm256_permute2x128_si256(low, high, 0x31), _mm256_permute2f128_ps(low_scales, high_scales, 0x31),
               layout, 8, to);
}

GODWIT_AVX2_END

}  // namespace

void quantize_x(const float* x, size_t in, const XLayout& layout, XUnit* to) {
  size_t k = 0;
  for (; k + kUnitValues <= in; k += kUnitValues) quantize_unit(x + k, layout, *to++);
  if (k == in) return;
  float rest[kUnitValues] = {};
  std::copy(x + k, x + in, rest);
  quantize_unit(rest, layout, *to);
}

}  // namespace godwit::cpu
