// Codes of K and V (page_layout.h) as operands of products of bf16 pairs: their levels, which bf16 holds exactly.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// Bytes of bf16 for the magnitudes 0 ... 127, and words for the levels of 4 and of 2 bits, again and again.
struct LevelTables {
  constexpr LevelTables() {
    for (uint32_t i = 0; i < 128; ++i) {
      const uint16_t bits = bf16(static_cast<float>(i));
      low[i] = static_cast<uint8_t>(bits);
      high[i] = static_cast<uint8_t>(bits >> 8);
    }
    for (uint32_t i = 0; i < 32; ++i) {
      four[i] = bf16(static_cast<float>(i % 16) - 7.5f);
      two[i] = bf16(static_cast<float>(i % 4) - 1.5f);
    }
    for (uint32_t i = 0; i < 16; ++i) {
      four_wide[i] = static_cast<float>(i) - 7.5f;
      two_wide[i] = static_cast<float>(i % 4) - 1.5f;
    }
  }
  static constexpr uint16_t bf16(float exact) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16); }

  alignas(64) std::array<uint8_t, 128> low{}, high{};
  alignas(64) std::array<uint16_t, 32> four{}, two{};
  alignas(64) std::array<float, 16> four_wide{}, two_wide{};  // the same in fp32
};
constexpr LevelTables kLevels;

// Lines 2i and 2i + 1 of codes of 8 bits, [lines / 2][line_columns][2], become row i of each block of the operand `to`,
// which is [columns / 16][depth / 2][16][2]; columns past line_columns get level 0.
inline void pack_codes8(const std::byte* from, size_t lines, size_t line_columns, size_t columns, size_t depth,
                        uint16_t* to, Ahead& ahead) {
  const __m512i low0 = _mm512_load_si512(kLevels.low.data()), low1 = _mm512_load_si512(kLevels.low.data() + 64);
  const __m512i high0 = _mm512_load_si512(kLevels.high.data()), high1 = _mm512_load_si512(kLevels.high.data() + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  // Bytes are joined to words within 16 bytes: columns 4i ... 4i + 3 of one block of 16, and of the next.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (size_t line = 0; line < lines; line += 2, from += 2 * line_columns, to += 32) {
    for (size_t column = 0; column < columns; column += 32) {
      const size_t left = line_columns - std::min(column, line_columns);
      const __mmask64 mask = left < 32 ? (uint64_t{1} << 2 * left) - 1 : ~uint64_t{0};
      ahead.step();
      const __m512i codes = _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi8(mask, from + 2 * column));
      const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
      const __m512i magnitude = _mm512_permutex2var_epi8(high0, codes, high1);
      const __m512i high = _mm512_ternarylogic_epi64(magnitude, codes, sign, 0xf8);  // magnitude | (codes & sign)
      _mm512_store_si512(to + column * depth, _mm512_unpacklo_epi8(low, high));
      if (column + 16 < columns) _mm512_store_si512(to + (column + 16) * depth, _mm512_unpackhi_epi8(low, high));
    }
  }
}

HWY_INLINE __m512i load_words(const std::byte* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// 16 bytes each of two rows of codes (code_rows.h) in turn, as words.
HWY_INLINE __m512i pair_words(const std::byte* first, const std::byte* second) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<uint8_t, 64> order{};
    for (size_t i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(i / 4 + i / 2 % 2 * 16);
    return order;
  }();
  const auto load = [](const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(load(first)), load(second), 1);
  return _mm512_maskz_permutexvar_epi8(0x5555555555555555, _mm512_load_si512(kOrder.data()),
                                       _mm512_castsi256_si512(both));
}

// Levels of codes of 2 or 4 bits, as bf16: of the lowest field of each word. A permutation looks at five bits of its
// index, hence the tables repeat.
template <int kBits>
HWY_INLINE __m512i lowest_levels(__m512i words) {
  return _mm512_permutexvar_epi16(words, _mm512_load_si512(kBits == 4 ? kLevels.four.data() : kLevels.two.data()));
}

// The numbers bf16(level * scale + middle) of all codes of two lines: 16 of the first, then 16 of the second.
template <int kBits>
HWY_INLINE __m512i pair_numbers(const float* scale, const float* middle) {
  const __m512 levels = _mm512_load_ps(kBits == 4 ? kLevels.four_wide.data() : kLevels.two_wide.data());
  return to_bf16(_mm512_fmadd_ps(levels, _mm512_set1_ps(scale[0]), _mm512_set1_ps(middle[0])),
                 _mm512_fmadd_ps(levels, _mm512_set1_ps(scale[1]), _mm512_set1_ps(middle[1])));
}

// The same of 2 bits and of eight lines, four numbers of each.
HWY_INLINE __m512i eight_lines_numbers(const float* scale, const float* middle) {
  const __m512 levels = _mm512_load_ps(kLevels.two_wide.data());
  const __m512i low = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m512i high = _mm512_setr_epi32(4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m512 scales = _mm512_castps256_ps512(_mm256_loadu_ps(scale));
  const __m512 middles = _mm512_castps256_ps512(_mm256_loadu_ps(middle));
  return to_bf16(_mm512_fmadd_ps(levels, _mm512_permutexvar_ps(low, scales), _mm512_permutexvar_ps(low, middles)),
                 _mm512_fmadd_ps(levels, _mm512_permutexvar_ps(high, scales), _mm512_permutexvar_ps(high, middles)));
}

// What such a table has for the lowest field of each word. Words are of two lines in turn, whose numbers begin at
// `first` and at `second`.
template <int kBits>
HWY_INLINE __m512i lowest_numbers(__m512i words, __m512i numbers, int first = 0, int second = 16) {
  const __m512i field = _mm512_set1_epi16((1 << kBits) - 1), begin = _mm512_set1_epi32(first | second << 16);
  const __m512i index = _mm512_ternarylogic_epi64(words, field, begin, 0xea);  // words & field | begin
  return _mm512_permutexvar_epi16(index, numbers);
}

// K of 2 or 4 bits, [dims / 2n][line_columns][2] bytes of n codes. With `scale` and `middle`, which are of dimensions,
// the operand holds numbers, or else levels.
template <int kBits>
void pack_key_codes(const std::byte* from, size_t dims, size_t line_columns, size_t columns, size_t depth,
                    const float* scale, const float* middle, uint16_t* to, Ahead& ahead) {
  constexpr size_t kFields = 8 / kBits;
  for (size_t dim = 0; dim < dims; dim += 2 * kFields, from += 2 * line_columns, to += 32 * kFields) {
    __m512i numbers[kFields];
    for (size_t field = 0; scale != nullptr && field < kFields; ++field)
      numbers[field] = pair_numbers<kBits>(scale + dim + 2 * field, middle + dim + 2 * field);
    for (size_t column = 0; column < columns; column += 16) {
      if (column % 32 == 0) ahead.step();
      __m512i words = load_words(from + 2 * column);
      for (size_t field = 0; field < kFields; ++field, words = _mm512_srli_epi16(words, kBits))
        _mm512_store_si512(to + column * depth + 32 * field, scale == nullptr
                                                                 ? lowest_levels<kBits>(words)
                                                                 : lowest_numbers<kBits>(words, numbers[field]));
    }
  }
}

// V of 2 or 4 bits: [tokens / 2][dims / 16n][16][2] bytes.
template <int kBits>
void pack_value_codes(const std::byte* from, size_t tokens, size_t dims, size_t depth, uint16_t* to, Ahead& ahead) {
  constexpr size_t kFields = 8 / kBits;
  for (size_t token = 0; token < tokens; token += 2, to += 32)
    for (size_t dim = 0; dim < dims; dim += 16 * kFields, from += 32) {
      if (dim % 64 == 0) ahead.step();
      __m512i words = load_words(from);
      for (size_t field = 0; field < kFields; ++field, words = _mm512_srli_epi16(words, kBits))
        _mm512_store_si512(to + (dim + 16 * field) * depth, lowest_levels<kBits>(words));
    }
}

// Scales and middles of dimensions as fp32.
inline void load_dim_scales(const PageHalf& half, const std::byte* page, float* scale, float* middle) {
  const auto* from = reinterpret_cast<const uint16_t*>(page + half.offset() + half.code_bytes());
  for (size_t i = 0; i < half.scales(); i += 16) {
    _mm512_store_ps(scale + i, _mm512_cvtph_ps(load_half(from + i)));
    _mm512_store_ps(middle + i, _mm512_cvtph_ps(load_half(from + half.scales() + i)));
  }
}

// Scales and middles of the first `tokens` slots of a page as fp32, zeros in those up to `slots`, a multiple of 16.
inline void load_scales(const PageHalf& half, const std::byte* page, size_t page_tokens, size_t tokens, size_t slots,
                        float* scale, float* middle) {
  const auto* from = reinterpret_cast<const uint16_t*>(page + half.offset() + half.code_bytes());
  for (size_t t = 0; t < slots; t += 16) {
    const size_t left = tokens - std::min(t, tokens);
    const auto mask = static_cast<__mmask16>(left < 16 ? (1u << left) - 1 : 0xffff);
    _mm512_store_ps(scale + t, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from + t)));
    _mm512_store_ps(middle + t, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from + page_tokens + t)));
  }
}
