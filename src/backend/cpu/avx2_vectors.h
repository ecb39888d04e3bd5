// AVX2 in plain intrinsics, for what Highway 1.0 has no names for. Functions that use it stand between
// GODWIT_AVX2_BEGIN and GODWIT_AVX2_END, not in lambdas, and run only where has_avx2() holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hwy/base.h>

// GCC 12 takes the undefined vectors inside its own intrinsics for uninitialized ones.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

// All that Highway's AVX2 has, so that its functions can be inlined.
#define GODWIT_AVX2_BEGIN HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c")
#define GODWIT_AVX2_END HWY_POP_ATTRIBUTES
// That, and products of 8-bit codes in vectors of 256 bits: where has_avx_vnni() holds.
#define GODWIT_AVX_VNNI_BEGIN \
  HWY_PUSH_ATTRIBUTES("sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avxvnni")
#define GODWIT_AVX_VNNI_END HWY_POP_ATTRIBUTES
