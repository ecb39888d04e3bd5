// Vectors of the bf16 attention: exponential, hyperbolic tangent, and pages as operands of a product.
//
// B operands: a matrix [depth, columns] lies as [columns / 16][depth / 2][16 columns][2 of the depth], which is what
// both a tile of AMX and a vector of VDPBF16PS want: 16 columns, each with two values that are multiplied together.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

inline constexpr float kLog2E = 1.44269504088896341f;

// 2^x for x <= 0 (and a little above): relative error below 4e-6, 1 at 0, 0 at -inf and far below, NaN stays NaN. The
// polynomial is the minimax one of 2^r, 0 <= r < 1, that is exact at 0; VSCALEFPS takes the floor of x by itself.
HWY_INLINE __m512 exp2_nonpositive(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x), 0 at -inf
  __m512 p = _mm512_set1_ps(0.013426686637103558f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0522424690425396f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.2412802129983902f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6930448412895203f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

HWY_INLINE __m512 exp_nonpositive(__m512 x) {
  return exp2_nonpositive(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)));
}

// (1 - e) / (1 + e) with e = exp(-2|x|) = 2^n (1 + f), and 1 - e taken without cancellation: relative error below 5e-5.
// The polynomial is the minimax one of 2^r, |r| <= 1/2, that is exact at 0.
HWY_INLINE __m512 tanh_full(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  // tanh(10) rounds to 1; the maximum lets a NaN pass.
  const __m512 y =
      _mm512_max_ps(_mm512_set1_ps(-20.0f * kLog2E), _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-2.0f * kLog2E)));
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(0.009582852944731712f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.055906426161527634f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24024099111557007f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931241750717163f));
  const __m512 scale = _mm512_scalef_ps(one, n);
  const __m512 rest = _mm512_fnmadd_ps(scale, _mm512_mul_ps(p, r), _mm512_sub_ps(one, scale));  // 1 - e
  const __m512 magnitude = _mm512_div_ps(rest, _mm512_sub_ps(_mm512_set1_ps(2.0f), rest));
  return _mm512_or_ps(magnitude, _mm512_and_ps(x, _mm512_set1_ps(-0.0f)));
}

// The largest lane of each of 16 vectors.
HWY_INLINE __m512 lane_maxima(const __m512* rows) {
  __m512 two[8], four[4], eight[2];  // lanes hold maxima of as many, for 2, 4 and 8 rows
  for (int i = 0; i < 8; ++i)
    two[i] = _mm512_max_ps(_mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]),
                           _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));
  for (int i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(two[2 * i]), b = _mm512_castps_pd(two[2 * i + 1]);
    four[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  for (int i = 0; i < 2; ++i)
    eight[i] = _mm512_max_ps(_mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x44),
                             _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xee));
  return _mm512_max_ps(_mm512_shuffle_f32x4(eight[0], eight[1], 0x88), _mm512_shuffle_f32x4(eight[0], eight[1], 0xdd));
}

// bf16 of `low` in the lower half, of `high` in the upper half.
HWY_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 16 elements of two stored lines, each line in its half.
HWY_INLINE __m512i join_lines(__m256i low, __m256i high, F16) {
  return to_bf16(_mm512_cvtph_ps(low), _mm512_cvtph_ps(high));
}
HWY_INLINE __m512i join_lines(__m256i low, __m256i high, BF16) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// 16 elements of a stored line as they lie there, and those that a mask leaves, with zeros for the rest.
template <class T>
HWY_INLINE __m256i load_line(const T* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HWY_INLINE __m512 load_line(const float* from) {
  return _mm512_loadu_ps(from);
}
template <class T>
HWY_INLINE __m256i load_line(const T* from, __mmask16 mask) {
  return _mm256_maskz_loadu_epi16(mask, from);
}
HWY_INLINE __m512 load_line(const float* from, __mmask16 mask) {
  return _mm512_maskz_loadu_ps(mask, from);
}
HWY_INLINE __m512i join_lines(__m512 low, __m512 high, float) {
  return to_bf16(low, high);
}

HWY_INLINE __m512i zip_order() {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_load_si512(kOrder);
}

HWY_INLINE __m256i load_half(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Memory that will be read next, fetched into the second cache. Pages lie anywhere, so the processor cannot guess it;
// fetching it bit by bit while this page is used keeps the memory busy all the time.
struct Ahead {
  const char* at = nullptr;
  const char* end = nullptr;

  HWY_INLINE void fetch(int lines) {
    if (at >= end) return;
    for (int i = 0; i < lines; ++i) _mm_prefetch(at + 64 * i, _MM_HINT_T1);
    at += 64 * lines;
  }

  // Between products: a line, and now and then a product that nobody reads. A tile unit that has nothing to do falls
  // asleep while a page is packed, and the next product would wait for it to wake, 0.1 to 0.3 us of a page's 1.
  HWY_INLINE void step() {
    fetch(1);
    if (wakes_tiles && ++steps % 8 == 0) AmxTiles::multiply_for_nothing<0, 4, 5>();
  }
  bool wakes_tiles = false;
  unsigned steps = 0;
};

// Lines 2i and 2i + 1 of a stored matrix [lines, line_columns] become row i of each block of the operand `to`, whose
// depth and columns (a multiple of 16) may be larger: zeros fill it.
template <class T>
void pack_operand(const T* from, size_t lines, size_t line_columns, size_t columns, size_t depth, uint16_t* to,
                  Ahead& ahead) {
  const __m512i zip = zip_order();
  const size_t block = depth * 16, even = lines / 2 * 2;
  const size_t whole = std::min(columns, line_columns) / 32 * 32;  // columns in whole cache lines
  for (size_t line = 0; line < even; line += 2) {
    const T* low = from + line * line_columns;
    uint16_t* row = to + line * 16;
    for (size_t column = 0; column < whole; column += 32, low += 32, row += 2 * block) {
      const T* high = low + line_columns;
      ahead.step();
      const __m512i left = join_lines(load_line(low), load_line(high), T());
      const __m512i right = join_lines(load_line(low + 16), load_line(high + 16), T());
      _mm512_store_si512(row, _mm512_permutexvar_epi16(zip, left));
      _mm512_store_si512(row + block, _mm512_permutexvar_epi16(zip, right));
    }
  }
  // What is left: columns that do not fill a cache line, the last of an odd number of lines, zeros.
  for (size_t column = 0; column < columns; column += 16) {
    const size_t left = line_columns - std::min(column, line_columns);
    const auto mask = static_cast<__mmask16>(left < 16 ? (1u << left) - 1 : 0xffff);
    for (size_t line = column < whole ? even : 0; line < depth; line += 2) {
      decltype(load_line(from)) pair[2] = {};
      for (size_t i = 0; i < 2 && line + i < lines; ++i)
        pair[i] = load_line(from + (line + i) * line_columns + column, mask);
      _mm512_store_si512(to + column * depth + line * 16,
                         _mm512_permutexvar_epi16(zip, join_lines(pair[0], pair[1], T())));
    }
  }
}

// Whether none of `count` (a multiple of 32) numbers is infinite or NaN.
inline bool all_finite(const uint16_t* numbers, size_t count) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  for (size_t i = 0; i < count; i += 32) {
    const __m512i bits = _mm512_and_si512(_mm512_load_si512(numbers + i), exponent);
    if (_mm512_cmpeq_epi16_mask(bits, exponent) != 0) return false;
  }
  return true;
}
