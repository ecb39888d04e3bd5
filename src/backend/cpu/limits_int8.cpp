// The peaks of products in 8 bits, of the instructions that int8_dot.h's kernels use.
#include <vector>

#include "backend/cpu/avx2_vectors.h"
#include "backend/cpu/avx512_vectors.h"
#include "backend/cpu/limits.h"

namespace godwit {
namespace {

constexpr int kChains = 12;

GODWIT_AVX512_BEGIN
double wide_chains(int rounds, int* sink) {
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(2);
  __m512i sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(*sink + i);
  for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) all = _mm512_add_epi32(all, sums[i]);
  *sink = _mm512_reduce_add_epi32(all);
  return 2.0 * 64 * kChains * rounds;
}
GODWIT_AVX512_END

GODWIT_AVX3_BEGIN
// As with codes of four bits: pairs of products, added in 16 bits.
double wide_pair_chains(int rounds, int* sink) {
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(2);
  __m512i sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi16(static_cast<int16_t>(*sink + i));
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+v"(a));  // else all products are one
      sums[i] = _mm512_add_epi16(sums[i], _mm512_maddubs_epi16(a, b));
      asm volatile("" : "+v"(sums[i]));
    }
  }
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) all = _mm512_add_epi16(all, sums[i]);
  *sink = _mm512_reduce_add_epi32(all);
  return 2.0 * 64 * kChains * rounds;
}
GODWIT_AVX3_END

GODWIT_AVX_VNNI_BEGIN
double avx_vnni_chains(int rounds, int* sink) {
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(2);
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(*sink + i);
  for (int round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
  __m256i all = _mm256_setzero_si256();
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) all = _mm256_add_epi32(all, sums[i]);
  *sink = _mm256_extract_epi32(_mm256_hadd_epi32(all, all), 0);
  return 2.0 * 32 * kChains * rounds;
}
GODWIT_AVX_VNNI_END

GODWIT_AVX2_BEGIN
// As with codes of four bits: pairs of products, added in 16 bits. Eight chains, a and b leave registers for products.
double narrow_chains(int rounds, int* sink) {
  constexpr int kNarrowChains = 8;
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(2);
  __m256i sums[kNarrowChains];
#pragma GCC unroll 8
  for (int i = 0; i < kNarrowChains; ++i) sums[i] = _mm256_set1_epi16(static_cast<int16_t>(*sink + i));
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kNarrowChains; ++i) {
      asm volatile("" : "+x"(a));  // else all products are one
      sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b));
      asm volatile("" : "+x"(sums[i]));
    }
  }
  __m256i all = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = 0; i < kNarrowChains; ++i) all = _mm256_add_epi16(all, sums[i]);
  *sink = _mm256_extract_epi16(all, 0);
  return 2.0 * 32 * kNarrowChains * rounds;
}
GODWIT_AVX2_END

}  // namespace

double int8_dot_round(ThreadPool& pool, Int8Unit unit) {
  constexpr int kRounds = 1'000'000;
  constexpr double (*kChainsOf[])(int, int*) = {wide_chains, wide_pair_chains, avx_vnni_chains, narrow_chains};
  const auto chains = kChainsOf[static_cast<size_t>(unit)];
  std::vector<double> done(static_cast<size_t>(pool.threads()));
  std::vector<int> sinks(done.size() * 16);  // each in a line of its own
  pool.parallel_for(pool.threads(), [&](int64_t i) {
    const auto thread = static_cast<size_t>(i);
    done[thread] = chains(kRounds, &sinks[16 * thread]);
  });
  double total = 0;
  for (double each : done) total += each;
  return total;
}

}  // namespace godwit
