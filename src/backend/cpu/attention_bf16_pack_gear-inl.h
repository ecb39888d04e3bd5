// Halves of pages of GearForm (backend/forms/gear.h) as operands of products of bf16 pairs. Codes become numbers by
// tables of two vectors each, and the extremes are then put in their places. The product a b is not added to the
// numbers: sums over vectors are taken with a, for all places at once, and spread by b where they are used,
//   sum over i of x[i] (sum over r of a[r, i] b[r, place]) = sum over r of (x . a[r]) b[r, place]
// a being 16 more columns of the product, whatever the rank. Extremes stand for a number without it: less a b.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// The two factors of a half's product.
struct GearSides {
  static constexpr size_t kColumns = 16;

  float* a;           // [rank, depth], with room for 16 numbers behind it
  uint16_t* factors;  // the same as an operand [depth, kColumns]; zero past the rank and the vectors
  float* b;           // [rank, length]
};

inline void widen_halves(const uint16_t* from, size_t count, float* to) {
  for (size_t i = 0; i < count; i += 16) _mm512_storeu_ps(to + i, _mm512_cvtph_ps(load_half(from + i)));
}

// `lines` is a multiple of 8.
template <int kBits>
void pack_gear_codes(const std::byte* row, size_t length, size_t lines, size_t depth, const float* scale,
                     const float* middle, uint16_t* to, Ahead& ahead) {
  constexpr size_t kFields = 8 / kBits;
  const size_t row_bytes = length / kFields;
  for (size_t line = 0; line < lines; line += 8) {
    __m512i numbers = _mm512_setzero_si512();
    if constexpr (kBits == 2) numbers = eight_lines_numbers(scale + line, middle + line);
    HWY_UNROLL(4)
    for (int pair = 0; pair < 8; pair += 2, row += 2 * row_bytes, to += 32) {
      const size_t first = line + static_cast<size_t>(pair);
      if constexpr (kBits == 4) numbers = pair_numbers<kBits>(scale + first, middle + first);
      if (pair % 4 == 0) ahead.step();
      for (size_t byte = 0; byte < row_bytes; byte += 16) {
        __m512i words = pair_words(row + byte, row + row_bytes + byte);
        for (size_t field = 0; field < kFields; ++field, words = _mm512_srli_epi16(words, kBits))
          _mm512_store_si512(to + (byte + field * row_bytes) * depth,
                             kBits == 4 ? lowest_numbers<kBits>(words, numbers)
                                        : lowest_numbers<kBits>(words, numbers, 4 * pair, 4 * pair + 4));
      }
    }
  }
}

// What a line of `length` numbers, a multiple of 32, has in 16 places.
HWY_INLINE __m512 pick(const float* line, size_t length, __m512i place) {
  __m512 picked = _mm512_setzero_ps();
  for (size_t begin = 0; begin < length; begin += 32) {
    const __m512i block = _mm512_set1_epi32(static_cast<int>(begin / 32));
    const __mmask16 here = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(place, 5), block);
    const __m512 low = _mm512_loadu_ps(line + begin), high = _mm512_loadu_ps(line + begin + 16);
    picked = _mm512_mask_mov_ps(picked, here, _mm512_permutex2var_ps(low, place, high));
  }
  return picked;
}

// Puts the extremes of the first `lines` vectors, a multiple of 32, into the operand `to`.
inline void put_extremes(const GearHalf& at, const std::byte* half, size_t lines, size_t depth, const GearSides& sides,
                         uint16_t* to, Ahead& ahead) {
  if (at.extremes == 0) return;
  const size_t each = 2 * at.extremes, count = lines * each;
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i last = _mm512_set1_epi32(static_cast<int>(at.length - 1));
  const __m512i one = _mm512_set1_epi32(1), block_words = _mm512_set1_epi32(static_cast<int>(16 * depth - 32));
  __m512i from_first = iota, line_words = iota;
  size_t known_before = each, known_odd = 0;  // what these two are for
  alignas(64) uint32_t where[256 * 2 * GearForm::kMostExtremes];
  alignas(64) uint16_t words[256 * 2 * GearForm::kMostExtremes];
  const __m512 share = _mm512_set1_ps(1.0f / static_cast<float>(each));
  const uint32_t whole = 16 / static_cast<uint32_t>(each);  // vectors that 16 extremes are of, and the rest
  const size_t rest = 16 - whole * each;
  size_t first = 0, before = 0;  // the vector that the next extreme is of, and how many of its own come before it
  for (size_t i = 0; i < count; i += 16) {
    const auto* places = reinterpret_cast<const __m128i*>(at.place(half, 0) + i);
    const __m512i place = _mm512_min_epu32(last, _mm512_cvtepu8_epi32(_mm_loadu_si128(places)));
    if (before != known_before || first % 2 != known_odd) {
      known_before = before, known_odd = first % 2;
      // Which of the vectors from the first on. The half keeps what is rounded away from whole numbers.
      const __m512 index = _mm512_cvtepi32_ps(_mm512_add_epi32(iota, _mm512_set1_epi32(static_cast<int>(before))));
      from_first = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_add_ps(index, _mm512_set1_ps(0.5f)), share));
      // Where the vectors are in the operand, from the first pair on: pair, which of the pair.
      const __m512i line = _mm512_add_epi32(from_first, _mm512_set1_epi32(static_cast<int>(known_odd)));
      line_words = _mm512_or_si512(_mm512_slli_epi32(_mm512_srli_epi32(line, 1), 5), _mm512_and_si512(line, one));
    }
    __m512 number = _mm512_cvtph_ps(load_half(at.extreme(half, 0) + i));
    for (size_t r = 0; r < at.rank; ++r) {
      const __m512 factor = _mm512_permutexvar_ps(from_first, _mm512_loadu_ps(sides.a + r * depth + first));
      number = _mm512_fnmadd_ps(factor, pick(sides.b + r * at.length, at.length, place), number);
    }
    // ... and the places: block of columns, column.
    const __m512i block = _mm512_mullo_epi32(_mm512_srli_epi32(place, 4), block_words);
    const __m512i pairs_before = _mm512_set1_epi32(static_cast<int>(first / 2 * 32));
    _mm512_store_si512(where + i, _mm512_add_epi32(_mm512_add_epi32(block, _mm512_slli_epi32(place, 1)),
                                                   _mm512_add_epi32(line_words, pairs_before)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(words + i), (__m256i)_mm512_cvtneps_pbh(number));
    first += whole;
    before += rest;
    if (before >= each) before -= each, ++first;
    ahead.step();
  }
  for (size_t i = 0; i < count; i += 16) {
    HWY_UNROLL(16)
    for (size_t j = i; j < i + 16; ++j) to[where[j]] = words[j];
  }
}

// The first `lines` vectors of a half, an even number, as lines of the operand `to`, which is
// [length / 16][depth / 2][16][2].
inline void pack_gear(const GearHalf& at, const std::byte* half, size_t lines, size_t depth, const GearSides& sides,
                      uint16_t* to, Ahead& ahead) {
  for (size_t r = 0; r < at.rank; ++r) {
    widen_halves(at.a(half, r), at.vectors, sides.a + r * depth);
    widen_halves(at.b(half, r), at.length, sides.b + r * at.length);
    alignas(64) uint32_t pairs[128];
    for (size_t i = 0; i < at.vectors; i += 32) {
      const float* from = sides.a + r * depth + i;
      _mm512_store_si512(pairs + i / 2, to_bf16(_mm512_load_ps(from), _mm512_load_ps(from + 16)));
    }
    auto* column = reinterpret_cast<uint32_t*>(sides.factors) + r;
    HWY_UNROLL(16)
    for (size_t i = 0; i < at.vectors / 2; ++i) column[i * GearSides::kColumns] = pairs[i];
  }
  alignas(64) float scale[256], middle[256];
  widen_halves(at.scale(half), at.vectors, scale);
  widen_halves(at.middle(half), at.vectors, middle);
  if (at.bits == 4)
    pack_gear_codes<4>(at.codes(half, 0), at.length, lines, depth, scale, middle, to, ahead);
  else
    pack_gear_codes<2>(at.codes(half, 0), at.length, lines, depth, scale, middle, to, ahead);
  put_extremes(at, half, lines, depth, sides, to, ahead);
}
