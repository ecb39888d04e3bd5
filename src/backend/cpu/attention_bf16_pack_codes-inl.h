// Codes of K and V (page_layout.h) as operands of products of bf16 pairs: their levels, which bf16 holds exactly.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// Bytes of bf16 for the magnitudes 0 ... 127, and words for the 16 levels of 4 bits, twice.
struct LevelTables {
  constexpr LevelTables() {
    for (uint32_t i = 0; i < 128; ++i) {
      const uint16_t bits = bf16(static_cast<float>(i));
      low[i] = static_cast<uint8_t>(bits);
      high[i] = static_cast<uint8_t>(bits >> 8);
    }
    for (uint32_t i = 0; i < 32; ++i) four[i] = bf16(static_cast<float>(i % 16) - 7.5f);
  }
  static constexpr uint16_t bf16(float exact) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16); }

  alignas(64) std::array<uint8_t, 128> low{}, high{};
  alignas(64) std::array<uint16_t, 32> four{};
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
      ahead.fetch(1);
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

// The levels of the lower halves of 32 bytes. A permutation looks at five bits of its index, hence the table is there
// twice.
HWY_INLINE __m512i lower_levels(__m512i words) {
  return _mm512_permutexvar_epi16(words, _mm512_load_si512(kLevels.four.data()));
}

// K of 4 bits: [dims / 4][line_columns][2] bytes.
inline void pack_key_codes4(const std::byte* from, size_t dims, size_t line_columns, size_t columns, size_t depth,
                            uint16_t* to, Ahead& ahead) {
  for (size_t dim = 0; dim < dims; dim += 4, from += 2 * line_columns, to += 64)
    for (size_t column = 0; column < columns; column += 16) {
      if (column % 32 == 0) ahead.fetch(1);
      const __m512i words = load_words(from + 2 * column);
      _mm512_store_si512(to + column * depth, lower_levels(words));
      _mm512_store_si512(to + column * depth + 32, lower_levels(_mm512_srli_epi16(words, 4)));
    }
}

// V of 4 bits: [tokens / 2][dims / 32][16][2] bytes.
inline void pack_value_codes4(const std::byte* from, size_t tokens, size_t dims, size_t depth, uint16_t* to,
                              Ahead& ahead) {
  for (size_t token = 0; token < tokens; token += 2, to += 32)
    for (size_t dim = 0; dim < dims; dim += 32, from += 32) {
      if (dim % 64 == 0) ahead.fetch(1);
      const __m512i words = load_words(from);
      _mm512_store_si512(to + dim * depth, lower_levels(words));
      _mm512_store_si512(to + (dim + 16) * depth, lower_levels(_mm512_srli_epi16(words, 4)));
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
