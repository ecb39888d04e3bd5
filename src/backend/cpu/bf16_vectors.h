// What the kernels on bf16 numbers share: AVX-512 in plain intrinsics, because Highway 1.0 has no target with BF16.
// Functions that use it stand between GODWIT_BF16_BEGIN and GODWIT_BF16_END, not in lambdas, and run only where
// has_avx512_bf16() holds; products in 8 bits use nothing of BF16, and run where has_avx512_vnni() holds, too.
#pragma once

#include "backend/cpu/avx2_vectors.h"

// All that Highway's AVX3 has, so that its functions can be inlined, and more.
#define GODWIT_BF16_BEGIN                                                                                  \
  HWY_PUSH_ATTRIBUTES(                                                                                     \
      "sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw," \
      "avx512vbmi,avx512vnni,avx512bf16")
#define GODWIT_BF16_END HWY_POP_ATTRIBUTES

GODWIT_BF16_BEGIN
namespace godwit::cpu {

HWY_INLINE __mmask16 first_floats(size_t count) {
  return count >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << count) - 1);
}

// 32 floats as bf16, of which `count` are there and the others 0.
HWY_INLINE __m512i load_bf16(const float* from, size_t count) {
  if (count >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
  const __m512 low = _mm512_maskz_loadu_ps(first_floats(count), from);
  const __m512 high = count > 16 ? _mm512_maskz_loadu_ps(first_floats(count - 16), from + 16) : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Values [begin, end) of rows as [block of 32][width][32].
inline void pack_bf16_rows(const float* const* rows, size_t count, size_t width, size_t begin, size_t end,
                           uint16_t* to) {
  for (size_t r = 0; r < count; ++r)
    for (size_t k = begin; k < end; k += 32)
      _mm512_store_si512(to + (k - begin) * width + 32 * r, load_bf16(rows[r] + k, end - k));
}

// The lanes of four vectors, each summed by halves.
HWY_INLINE __m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 v[4] = {a, b, c, d};
  __m128 quarter[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v[i]), _mm512_extractf32x8_ps(v[i], 1));
    quarter[i] = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(quarter[0], quarter[1]), _mm_unpackhi_ps(quarter[0], quarter[1]));
  const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(quarter[2], quarter[3]), _mm_unpackhi_ps(quarter[2], quarter[3]));
  return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

// Sixteen vectors of sixteen 32-bit lanes: lane j of vector i to lane i of vector j.
HWY_INLINE void transpose(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (size_t i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 * i + j] now holds column 4 * lane + j of rows 4 * i ... 4 * i + 3, for each of the four 128-bit lanes.
#pragma GCC unroll 4
  for (size_t j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88), b = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xDD), d = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xDD);
    t[j] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(a, b, 0xDD);
    t[4 + j] = _mm512_shuffle_i32x4(c, d, 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(c, d, 0xDD);
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) v[i] = t[i];
}

}  // namespace godwit::cpu
GODWIT_BF16_END
