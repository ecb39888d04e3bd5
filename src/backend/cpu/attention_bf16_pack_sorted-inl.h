// Pages of SortedForm (backend/forms/sorted.h) as operands of products of bf16 pairs: whole numbers times a power of
// two, which bf16 holds exactly. The whole numbers are made 2^kBias times as large, and the power is taken from their
// exponents by a subtraction that stops at zero, which is what becomes of zero.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

struct SortedLevels {
  static constexpr int kBias = 16;  // no block has a larger exponent

  constexpr SortedLevels() {
    for (uint32_t i = 0; i < 32; ++i) four[i] = LevelTables::bf16((static_cast<float>(i % 16) - 7.0f) * 65536.0f);
  }
  alignas(64) std::array<uint16_t, 32> four{};
};
constexpr SortedLevels kSortedLevels;

// bf16(2^kBias (code - top)) of the lowest field of each word.
template <int kBits>
HWY_INLINE __m512i lowest_sorted_levels(__m512i words) {
  if constexpr (kBits == 4) {
    return _mm512_permutexvar_epi16(words, _mm512_load_si512(kSortedLevels.four.data()));
  } else {
    const __m512i level = _mm512_sub_epi16(words, _mm512_set1_epi16(127));
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    const __m512i first = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_slli_epi32(level, 16)));
    const __m512i second = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_and_si512(level, high)));
    return _mm512_ternarylogic_epi64(_mm512_srli_epi32(first, 16), second, high, 0xf8);  // first | (second & high)
  }
}

// What is to be taken from the exponents of levels: of 16 exponents, each as the lower half of a lane.
HWY_INLINE __m512i steps_down(const int8_t* exponents) {
  const __m512i exponent = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents)));
  return _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(SortedLevels::kBias), exponent), 7);
}

template <int kBits>
void pack_sorted_keys(const SortedForm& form, const std::byte* page, size_t depth, uint16_t* to, Ahead& ahead) {
  constexpr size_t kFields = 8 / kBits;
  const size_t dims = form.head_dim(), tokens = form.page_tokens(), row_bytes = tokens / kFields;
  alignas(64) uint32_t down[16 * 256];  // [block, token], in both halves
  uint8_t row_of[256] = {};
  const uint8_t* order = form.order(page);
  for (size_t i = 0; i < dims; ++i) row_of[order[i]] = static_cast<uint8_t>(i);
  const int8_t* exponents = form.k_exponents(page);
  for (size_t i = 0; i < dims / SortedForm::kBlock * tokens; i += 16) {
    const __m512i once = steps_down(exponents + i);
    _mm512_store_si512(down + i, _mm512_or_si512(once, _mm512_slli_epi32(once, 16)));
  }
  const std::byte* codes = form.k_codes(page);
  for (size_t dim = 0; dim < dims; dim += 2, to += 32) {
    const size_t first = row_of[dim], second = row_of[dim + 1];
    const uint32_t* first_down = down + first / SortedForm::kBlock * tokens;
    const uint32_t* second_down = down + second / SortedForm::kBlock * tokens;
    ahead.step();
    for (size_t byte = 0; byte < row_bytes; byte += 16) {
      __m512i words = pair_words(codes + first * row_bytes + byte, codes + second * row_bytes + byte);
      for (size_t field = 0; field < kFields; ++field, words = _mm512_srli_epi16(words, 4)) {
        const size_t t = byte + field * row_bytes;
        const __m512i both =
            _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_load_si512(first_down + t), _mm512_load_si512(second_down + t));
        _mm512_store_si512(to + t * depth, _mm512_subs_epu16(lowest_sorted_levels<kBits>(words), both));
      }
    }
  }
}

// V of the first `lines` tokens, an even number.
template <int kBits>
void pack_sorted_values(const SortedForm& form, const std::byte* page, size_t lines, size_t depth, uint16_t* to,
                        Ahead& ahead) {
  constexpr size_t kFields = 8 / kBits;
  const size_t dims = form.head_dim(), row_bytes = dims / kFields, blocks = dims / SortedForm::kBlock;
  const std::byte* row = form.v_codes(page);
  const int8_t* exponents = form.v_exponents(page);
  for (size_t line = 0; line < lines; line += 2, row += 2 * row_bytes, exponents += 2 * blocks, to += 32) {
    alignas(64) uint32_t down[16];  // of each block, for both tokens; codes lie behind the exponents, so 16 can be read
    _mm512_store_si512(down,
                       _mm512_or_si512(steps_down(exponents), _mm512_slli_epi32(steps_down(exponents + blocks), 16)));
    ahead.step();
    for (size_t byte = 0; byte < row_bytes; byte += 16) {
      __m512i words = pair_words(row + byte, row + row_bytes + byte);
      for (size_t field = 0; field < kFields; ++field, words = _mm512_srli_epi16(words, 4)) {
        const size_t dim = byte + field * row_bytes;
        const __m512i both = _mm512_set1_epi32(static_cast<int>(down[dim / SortedForm::kBlock]));
        _mm512_store_si512(to + dim * depth, _mm512_subs_epu16(lowest_sorted_levels<kBits>(words), both));
      }
    }
  }
}
