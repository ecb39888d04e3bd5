// A few rows of x with four weight rows as they lie in memory (int8_dot.h).
#pragma once

#include <algorithm>

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/int8_types-inl.h"

GODWIT_AVX512_BEGIN
namespace godwit::cpu {
namespace {

// Vectors with a lane for every group.
struct Lanes8 {
  static HWY_INLINE __m256 zero() { return _mm256_setzero_ps(); }
  static HWY_INLINE __m256 load(const float* from) { return _mm256_load_ps(from); }
  static HWY_INLINE __m256 mul(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
  static HWY_INLINE __m256 mul_add(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
  static HWY_INLINE __m256 to_floats(__m512i sums) { return _mm256_cvtepi32_ps(_mm512_castsi512_si256(sums)); }
  static HWY_INLINE __m512i load_biases(const int32_t* from) {
    return _mm512_zextsi256_si512(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
};
struct Lanes16 {
  static HWY_INLINE __m512 zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE __m512 load(const float* from) { return _mm512_load_ps(from); }
  static HWY_INLINE __m512 mul(__m512 a, __m512 b) { return _mm512_mul_ps(a, b); }
  static HWY_INLINE __m512 mul_add(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
  static HWY_INLINE __m512 to_floats(__m512i sums) { return _mm512_cvtepi32_ps(sums); }
  static HWY_INLINE __m512i load_biases(const int32_t* from) { return _mm512_load_si512(from); }
};

// Adds up the lanes of products that belong to a group: quarter q of vector i has the 16 values at place 4 i + q.
template <class Type>
struct GroupSums {
  static constexpr XLayout kX = Type::kX;
  static constexpr size_t kVectors = Type::kSharedSums ? 2 : 4;  // of sums

  // Eight products of the largest codes fit 16 bits: lanes are then added by pairs in half the instructions.
  static constexpr bool kNarrow = Type::kLargestCode * 128 * 8 < 32768;

  // Where each group's sum is, once lanes are added.
  struct Index {
    alignas(64) int32_t lane[16];
    constexpr Index() : lane() {
      for (size_t group = 0; group < 16; ++group) {
        const size_t place = kX.place(group % kX.groups, 0), vector = Type::kSharedSums ? place / 8 : place / 4;
        lane[group] = static_cast<int32_t>(4 * (place % 4) + vector * (Type::kSharedSums && kNarrow ? 2 : 1));
      }
    }
  };
  static constexpr Index kIndex{};

  static HWY_INLINE __m512i of(const __m512i (&sums)[kVectors]) {
    __m512i all;
    if constexpr (Type::kSharedSums) {  // a block is a quarter
      all = add_pairs(sums[0], sums[1]);
      all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, kNarrow ? _MM_PERM_CDAB : _MM_PERM_BADC));
    } else {
      const __m512i a = add_pairs(sums[0], sums[1]), b = add_pairs(sums[2], sums[3]);
      all = kNarrow ? add_pairs(a, b) : _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
      if constexpr (kX.groups == 8) all = _mm512_add_epi32(all, _mm512_shuffle_i32x4(all, all, 0xB1));
    }
    return _mm512_permutexvar_epi32(_mm512_load_si512(kIndex.lane), all);
  }

 private:
  // In each quarter, narrow: a0 + a1, a2 + a3, b0 + b1, b2 + b3; else a0 + a2, b0 + b2, a1 + a3, b1 + b3.
  static HWY_INLINE __m512i add_pairs(__m512i a, __m512i b) {
    if constexpr (kNarrow) return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
};

// Rows are read one after the other, as they lie in memory: four at a time would be half as fast.

// A weight row on its way through its units, and its sums with kRows rows of x.
template <class Type, size_t kRows>
struct RowWalk {
  using Lanes = std::conditional_t<Type::kX.groups == 8, Lanes8, Lanes16>;
  using Sums = GroupSums<Type>;
  const std::byte* from;
  decltype(Lanes::zero()) totals[kRows];

  HWY_INLINE RowWalk(const Int8Weights& w, size_t row) : from(w.first + std::min(row, w.rows - 1) * w.stride) {
    for (auto& total : totals) total = Lanes::zero();
  }

  HWY_INLINE void walk(const Int8Weights& w, const XUnit* x, size_t units) {
    for (size_t k = kUnitValues; k <= w.in; k += kUnitValues, from += Type::kUnitBytes, ++x) {
      for (size_t line = 0; line < Type::kUnitBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(from) + kFarAhead + line, _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead + line, _MM_HINT_T0);
      }
      multiply(from, x, units);
    }
    if constexpr (requires { Type::kSmallBlocks; }) {
      const size_t rest = w.in % kUnitValues;
      if (rest == 0) return;
      alignas(64) std::byte padded[Type::kUnitBytes] = {};
      std::memcpy(padded, from, rest / 32 * (Type::kUnitBytes / 8));
      multiply(padded, x, units);
    }
  }

 private:
  HWY_INLINE void multiply(const std::byte* unit, const XUnit* x, size_t units) {
    WeightUnit<Type> w;
    Type::load(unit, w);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r, x += units) {
      constexpr size_t kShared = 4 / Sums::kVectors;
      __m512i sums[Sums::kVectors];
#pragma GCC unroll 4
      for (size_t s = 0; s < Sums::kVectors; ++s) {
        sums[s] = _mm512_setzero_si512();
#pragma GCC unroll 2
        for (size_t v = s * kShared; v < (s + 1) * kShared; ++v)
          sums[s] = _mm512_dpbusd_epi32(sums[s], w.codes[v], _mm512_load_si512(x->codes + 64 * v));
      }
      __m512i products = Sums::of(sums);
      if constexpr (Type::kX.constant != 0) products = _mm512_add_epi32(products, Lanes::load_biases(x->biases));
      totals[r] = Lanes::mul_add(Lanes::to_floats(products), Lanes::mul(w.scales, Lanes::load(x->scales)), totals[r]);
      if constexpr (Type::kX.offsets != Offsets::kNone)
        totals[r] = Lanes::mul_add(w.offsets, Lanes::load(x->offsets), totals[r]);
    }
  }
};

// The lanes of four vectors, each summed in order.
HWY_INLINE __m128 add_in_order(__m128 sum, __m128 a, __m128 b, __m128 c, __m128 d) {
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(_mm_add_ps(_mm_add_ps(sum, a), b), c), d);
}
HWY_INLINE __m128 sum_in_order(__m128 a, __m128 b, __m128 c, __m128 d) {
  _MM_TRANSPOSE4_PS(a, b, c, d);
  return _mm_add_ps(_mm_add_ps(_mm_add_ps(a, b), c), d);
}
HWY_INLINE __m128 sum_in_order(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m128 first = sum_in_order(_mm256_castps256_ps128(a), _mm256_castps256_ps128(b), _mm256_castps256_ps128(c),
                                    _mm256_castps256_ps128(d));
  return add_in_order(first, _mm256_extractf128_ps(a, 1), _mm256_extractf128_ps(b, 1), _mm256_extractf128_ps(c, 1),
                      _mm256_extractf128_ps(d, 1));
}
HWY_INLINE __m128 sum_in_order(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m128 sum = sum_in_order(_mm512_castps512_ps256(a), _mm512_castps512_ps256(b), _mm512_castps512_ps256(c),
                            _mm512_castps512_ps256(d));
  sum = add_in_order(sum, _mm512_extractf32x4_ps(a, 2), _mm512_extractf32x4_ps(b, 2), _mm512_extractf32x4_ps(c, 2),
                     _mm512_extractf32x4_ps(d, 2));
  return add_in_order(sum, _mm512_extractf32x4_ps(a, 3), _mm512_extractf32x4_ps(b, 3), _mm512_extractf32x4_ps(c, 3),
                      _mm512_extractf32x4_ps(d, 3));
}

// Four rows, whose lanes are summed together. (Not an array of rows: GCC would keep that in memory.)
template <class Type, size_t kRows>
void dot(const Int8Weights& weights, const XUnit* x, size_t units, float* sums, size_t sums_stride) {
  const Int8Weights w = weights;
  RowWalk<Type, kRows> a(w, 0), b(w, 1), c(w, 2), d(w, 3);
  a.walk(w, x, units);
  b.walk(w, x, units);
  c.walk(w, x, units);
  d.walk(w, x, units);
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r)
    _mm_storeu_ps(sums + r * sums_stride, sum_in_order(a.totals[r], b.totals[r], c.totals[r], d.totals[r]));
}

}  // namespace
}  // namespace godwit::cpu
GODWIT_AVX512_END
