// What the kernels that need more of AVX-512 than Highway's AVX3 share, in plain intrinsics. Functions that use it
// stand between GODWIT_AVX512_BEGIN and GODWIT_AVX512_END, not in lambdas, and run only where has_avx512_vnni() holds.
#pragma once

#include "backend/cpu/avx2_vectors.h"

// All that Highway's AVX3 has, so that its functions can be inlined: where has_avx512() holds.
#define GODWIT_AVX3_BEGIN                                                                                  \
  HWY_PUSH_ATTRIBUTES(                                                                                     \
      "sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw," \
      "avx512cd")
#define GODWIT_AVX3_END HWY_POP_ATTRIBUTES
// That, and VNNI with what comes with it since Cascade Lake.
#define GODWIT_AVX512_BEGIN                                                                                \
  HWY_PUSH_ATTRIBUTES(                                                                                     \
      "sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw," \
      "avx512cd,avx512vnni")
#define GODWIT_AVX512_END HWY_POP_ATTRIBUTES

GODWIT_AVX512_BEGIN
namespace godwit::cpu {

HWY_INLINE __mmask16 first_floats(size_t count) {
  return count >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << count) - 1);
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
GODWIT_AVX512_END
