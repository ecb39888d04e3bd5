// Vectors of the bf16 attention: exponential, hyperbolic tangent, and pages as operands of a product.
//
// B operands: a matrix [depth, columns] lies as [columns / 16][depth / 2][16 columns][2 of the depth], which is what
// both a tile of AMX and a vector of VDPBF16PS want: 16 columns, each with two values that are multiplied together.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// exp(x) for x <= 0: relative error below 4e-6, exp(0) = 1 exactly, 0 at -inf and far below, NaN stays NaN. The
// polynomial is the minimax one of 2^r, |r| <= 1/2, that is exact at 0.
struct ExpParts {
  __m512 n;         // exp(x) = 2^n (1 + fraction)
  __m512 fraction;  // 2^r - 1
};

GODWIT_INLINE ExpParts exp_parts(__m512 x) {
  // Adding 1.5 * 2^23 rounds to an integer. The comparison lets a NaN pass, and keeps r small elsewhere.
  const __m512 shift = _mm512_set1_ps(12582912.0f), log2e = _mm512_set1_ps(1.44269504088896341f);
  const __m512 y = _mm512_max_ps(_mm512_set1_ps(-1000.0f), x);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(y, log2e, shift), shift);
  const __m512 r = _mm512_fmsub_ps(y, log2e, n);
  __m512 p = _mm512_set1_ps(0.009582852944731712f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.055906426161527634f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24024099111557007f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6931241750717163f));
  return {n, _mm512_mul_ps(p, r)};
}

GODWIT_INLINE __m512 exp_nonpositive(__m512 x) {
  const ExpParts parts = exp_parts(x);
  return _mm512_scalef_ps(_mm512_add_ps(parts.fraction, _mm512_set1_ps(1.0f)), parts.n);
}

// (1 - e) / (1 + e) with e = exp(-2|x|), and 1 - e taken without cancellation: relative error below 5e-5.
GODWIT_INLINE __m512 tanh_full(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
  const ExpParts parts = exp_parts(_mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-2.0f)));
  const __m512 scale = _mm512_scalef_ps(one, parts.n);
  const __m512 rest = _mm512_fnmadd_ps(scale, parts.fraction, _mm512_sub_ps(one, scale));  // 1 - e
  const __m512 magnitude = _mm512_div_ps(rest, _mm512_sub_ps(_mm512_set1_ps(2.0f), rest));
  return _mm512_or_ps(magnitude, _mm512_and_ps(x, sign));
}

// bf16 of `low` in the lower half, of `high` in the upper half.
GODWIT_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 16 elements of two stored lines, each line in its half.
GODWIT_INLINE __m512i join_lines(__m256i low, __m256i high, F16) {
  return to_bf16(_mm512_cvtph_ps(low), _mm512_cvtph_ps(high));
}
GODWIT_INLINE __m512i join_lines(__m256i low, __m256i high, BF16) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

GODWIT_INLINE __m512i zip_order() {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_load_si512(kOrder);
}

GODWIT_INLINE __m256i load_half(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Lines 2i and 2i + 1 of a stored matrix [lines, line_columns] become row i of each block of the operand `to`, whose
// depth and columns (a multiple of 16) may be larger: zeros fill it. `ahead`: bytes from here to what is read next.
template <class T>
void pack_operand(const T* from, size_t lines, size_t line_columns, size_t columns, size_t depth, uint16_t* to,
                  ptrdiff_t ahead) {
  const __m512i zip = zip_order();
  const size_t block = depth * 16, even = lines / 2 * 2;
  size_t column = 0;
  for (; column + 32 <= std::min(columns, line_columns); column += 32) {  // a cache line of each line
    const T* low = from + column;
    uint16_t* row = to + column * depth;
    for (size_t line = 0; line < even; line += 2, low += 2 * line_columns, row += 32) {
      const T* high = low + line_columns;
      const char* next = reinterpret_cast<const char*>(low) + ahead;
      _mm_prefetch(next, _MM_HINT_T0);
      _mm_prefetch(next + line_columns * sizeof(T), _MM_HINT_T0);
      const __m512i left = join_lines(load_half(low), load_half(high), T());
      const __m512i right = join_lines(load_half(low + 16), load_half(high + 16), T());
      _mm512_store_si512(row, _mm512_permutexvar_epi16(zip, left));
      _mm512_store_si512(row + block, _mm512_permutexvar_epi16(zip, right));
    }
  }
  // What is left: columns that do not fill a cache line, the last of an odd number of lines, zeros.
  const size_t done = column;
  for (column = 0; column < columns; column += 16) {
    const size_t left = line_columns - std::min(column, line_columns);
    const auto mask = static_cast<__mmask16>(left < 16 ? (1u << left) - 1 : 0xffff);
    for (size_t line = column < done ? even : 0; line < depth; line += 2) {
      __m256i pair[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
      for (size_t i = 0; i < 2 && line + i < lines; ++i)
        pair[i] = _mm256_maskz_loadu_epi16(mask, from + (line + i) * line_columns + column);
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
