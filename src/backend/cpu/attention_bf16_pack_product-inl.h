// Pages of a ProductForm as operands of products of bf16 pairs: indices become centroids, which the form also has in
// bf16.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

// What these functions read; others go by way of fp32.
inline bool packs(const ProductForm& form) {
  return form.width() % 2 == 0 && form.page_tokens() == 64;
}

// Bytes of a table of 256 for 64 indices. `upper`: those of 128 or more.
HWY_INLINE __m512i look_up(const uint8_t* table, __m512i indices, __mmask64 upper) {
  const auto part = [&](size_t i) { return _mm512_load_si512(table + 64 * i); };
  return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(part(0), indices, part(1)),
                                _mm512_permutex2var_epi8(part(2), indices, part(3)));
}

// A row of K's indices in an order that makes unpacking put tokens where the operand has them: bytes 4j ... 4j + 3 of
// the i-th 16 are the tokens 16j + 4i and on.
struct KeyIndices {
  explicit KeyIndices(const uint8_t* from)
      : bytes(_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                       _mm512_loadu_si512(from))),
        upper(_mm512_movepi8_mask(bytes)) {}

  __m512i bytes;
  __mmask64 upper;
};

// The operand [depth, 64] of a page's keys, all of them.
inline void pack_product_keys(const ProductForm& form, const std::byte* page, size_t depth, uint16_t* to,
                              Ahead& ahead) {
  constexpr size_t kCentroids = ProductForm::kCentroids;
  const uint8_t *book = form.k_bf16(PageForm::table_of(page)), *indices = form.k_index(page);
  const size_t block = depth * 16;
  for (size_t group = 0; group < form.groups(); group += 2, indices += 2 * 64) {
    const KeyIndices even(indices), odd(indices + 64);
    for (size_t dim = group; dim < form.head_dim(); dim += form.groups()) {
      ahead.step();
      const uint8_t* tables = book + dim * 2 * kCentroids;
      const __m512i even_low = look_up(tables, even.bytes, even.upper);
      const __m512i even_high = look_up(tables + kCentroids, even.bytes, even.upper);
      const __m512i odd_low = look_up(tables + 2 * kCentroids, odd.bytes, odd.upper);
      const __m512i odd_high = look_up(tables + 3 * kCentroids, odd.bytes, odd.upper);
      const __m512i a = _mm512_unpacklo_epi8(even_low, even_high), b = _mm512_unpacklo_epi8(odd_low, odd_high);
      const __m512i c = _mm512_unpackhi_epi8(even_low, even_high), d = _mm512_unpackhi_epi8(odd_low, odd_high);
      uint16_t* row = to + dim * 16;
      _mm512_store_si512(row, _mm512_unpacklo_epi16(a, b));
      _mm512_store_si512(row + block, _mm512_unpackhi_epi16(a, b));
      _mm512_store_si512(row + 2 * block, _mm512_unpacklo_epi16(c, d));
      _mm512_store_si512(row + 3 * block, _mm512_unpackhi_epi16(c, d));
    }
  }
}

// The operand [depth, head_dim] of a page's values, 16 groups of all tokens at a time: their centroids stay in the
// first cache.
inline void pack_product_values(const ProductForm& form, const std::byte* page, size_t depth, uint16_t* to,
                                Ahead& ahead) {
  constexpr size_t kCentroids = ProductForm::kCentroids;
  const size_t groups = form.groups();
  const __m512i table = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                           _mm512_set1_epi32(kCentroids));
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (size_t pair = 0; pair < form.width() / 2; ++pair)
    for (size_t group = 0; group < groups; group += 16) {
      const uint32_t* book = form.v_bf16(PageForm::table_of(page)) + (pair * groups + group) * kCentroids;
      const uint8_t* indices = form.v_index(page) + group;
      uint16_t* low = to + (2 * pair * groups + group) * depth;
      uint16_t* high = low + groups * depth;
      for (size_t token = 0; token < 64; token += 2, indices += 2 * groups, low += 32, high += 32) {
        ahead.step();
        const auto look_up = [&](const uint8_t* from) {
          const __m512i index = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
          return _mm512_i32gather_epi32(_mm512_add_epi32(index, table), book, 4);
        };
        const __m512i a = look_up(indices), b = look_up(indices + groups);
        _mm512_store_si512(low, _mm512_ternarylogic_epi32(_mm512_slli_epi32(b, 16), a, upper, 0xf4));   // b | (a & ~u)
        _mm512_store_si512(high, _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, upper, 0xf8));  // a | (b & u)
      }
    }
}
