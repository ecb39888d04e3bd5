// What the kernels on bf16 numbers share: AVX-512 in plain intrinsics, because Highway 1.0 has no target with BF16.
// Functions that use it stand between GODWIT_BF16_BEGIN and GODWIT_BF16_END, not in lambdas, and run only where
// has_avx512_bf16() holds.
#pragma once

#include "backend/cpu/avx512_vectors.h"

// All that avx512_vectors.h has, so that its functions can be inlined, and more.
#define GODWIT_BF16_BEGIN                                                                                  \
  HWY_PUSH_ATTRIBUTES(                                                                                     \
      "sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw," \
      "avx512cd,avx512vnni,avx512vbmi,avx512bf16")
#define GODWIT_BF16_END HWY_POP_ATTRIBUTES

GODWIT_BF16_BEGIN
namespace godwit::cpu {

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

}  // namespace godwit::cpu
GODWIT_BF16_END
