// Sparse K and V (page_layout.h) as operands of products of bf16 pairs: numbers are rounded to bf16 while they are
// few, and then spread into their lines.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

HWY_INLINE __m512i round_any(__m512i f16) {
  return to_bf16(_mm512_cvtph_ps(_mm512_castsi512_si256(f16)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(f16, 1)));
}

// Numbers of f16 as bf16, by integers, in half the time of the processor's conversions: seven bits of the mantissa stay
// (a tie goes up), and the exponent's bias grows by 112. That is right for normal numbers; `most` becomes kOdd or more
// if there are others.
inline constexpr short kOdd = 0x7800;
HWY_INLINE __m512i round_normal(__m512i f16, __m512i& most) {
  const __m512i mask = _mm512_set1_epi16(0x7fff), magnitude = _mm512_and_si512(f16, mask);
  most = _mm512_max_epu16(most, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(0x400)));
  const __m512i eighth = _mm512_mulhrs_epi16(magnitude, _mm512_set1_epi16(1 << 12));
  const __m512i biased = _mm512_add_epi16(eighth, _mm512_set1_epi16(112 << 7));
  return _mm512_ternarylogic_epi64(biased, f16, mask, 0xf4);  // biased | (f16 & ~mask)
}

// `count` numbers of f16 as bf16; writes whole vectors.
inline void round_numbers(const uint16_t* from, size_t count, uint16_t* to) {
  const size_t whole = count / 32 * 32;
  __m512i most = _mm512_setzero_si512();
  for (size_t i = 0; i < whole; i += 32) _mm512_store_si512(to + i, round_normal(_mm512_loadu_si512(from + i), most));
  if (_mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(kOdd)) != 0)
    for (size_t i = 0; i < whole; i += 32) _mm512_store_si512(to + i, round_any(_mm512_loadu_si512(from + i)));
  const __mmask32 rest = (1u << (count - whole)) - 1;
  if (rest != 0) _mm512_store_si512(to + whole, round_any(_mm512_maskz_loadu_epi16(rest, from + whole)));
}

template <class Bits>
HWY_INLINE Bits load_bits(const std::byte* from) {
  Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// 32 columns of a line, of which `bits` says which are there. `numbers` then stands behind those.
HWY_INLINE __m512i spread(uint32_t bits, const uint16_t*& numbers) {
  const __m512i some = _mm512_loadu_si512(numbers);
  numbers += std::popcount(bits);
  return _mm512_maskz_expand_epi16(bits, some);
}

// Lines 2i and 2i + 1 become row i of each block of the operand `to`, as in pack_operand(). `numbers` has room for
// those of the half and a vector more.
inline void pack_sparse(const PageHalf& half, const std::byte* page, size_t depth, uint16_t* numbers, uint16_t* to,
                        Ahead& ahead) {
  const size_t line_bytes = half.columns() / 8, block = depth * 16;
  const std::byte* bitmap = page + half.offset();
  round_numbers(reinterpret_cast<const uint16_t*>(bitmap + half.bitmap_bytes()), half.kept() * half.tokens(), numbers);
  // Words are paired within 16 bytes: columns 4i ... 4i + 3 of one block of 16, and of the next.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const uint16_t* low = numbers;
  for (size_t line = 0; line < half.rows(); line += 2, bitmap += 2 * line_bytes) {
    const uint16_t* high = low;
    ahead.step();
    ahead.fetch(1);
    for (size_t i = 0; i < line_bytes; i += 2) high += std::popcount(load_bits<uint16_t>(bitmap + i));
    uint16_t* row = to + line * 16;
    for (size_t i = 0; i < line_bytes; i += 4, row += 2 * block) {
      const bool two = i + 4 <= line_bytes;  // blocks
      const auto bits = [&](const std::byte* from) {
        return two ? load_bits<uint32_t>(from) : load_bits<uint16_t>(from);
      };
      const __m512i a = _mm512_permutexvar_epi64(order, spread(bits(bitmap + i), low));
      const __m512i b = _mm512_permutexvar_epi64(order, spread(bits(bitmap + line_bytes + i), high));
      _mm512_store_si512(row, _mm512_unpacklo_epi16(a, b));
      if (two) _mm512_store_si512(row + block, _mm512_unpackhi_epi16(a, b));
    }
    low = high;
  }
}
