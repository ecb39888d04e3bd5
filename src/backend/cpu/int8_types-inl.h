// Stored weights as codes for vpdpbusd: one class per type, each value scale * code + offset with a code of 0 to 255.
// A class has its layout (int8_layouts.h) and load().
#pragma once

#include <cstring>
#include <type_traits>

#include "backend/cpu/int8_layouts.h"
#include "backend/cpu/lines_512-inl.h"

GODWIT_AVX512_BEGIN
namespace godwit::cpu {
namespace {

// 256 values: their codes, and a scale, and an offset where the type stores one, of each of eight or sixteen groups.
struct Unit8 {
  __m512i codes[4];
  __m256 scales, offsets;
};
struct Unit16 {
  __m512i codes[4];
  __m512 scales, offsets;
};
template <class Layout>
struct Codes;
template <class Type>
using WeightUnit = std::conditional_t<Type::kX.groups == 8, Unit8, Unit16>;

HWY_INLINE __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
// Once: GCC would read memory again for every use, and these vectors lie across lines.
HWY_INLINE __m512i load_64(const void* from) {
  __m512i bytes = _mm512_loadu_si512(from);
  asm("" : "+v"(bytes));
  return bytes;
}
HWY_INLINE __m512i twice_32(const void* from) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
// A vector of two halves.
HWY_INLINE __m512i halves(int16_t low, int16_t high) {
  return _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
}
HWY_INLINE __m512 f16_everywhere(uint16_t d) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(d)));
}

// --- blocks of 32

// Numbers of four bytes, from eight blocks. (GCC makes _mm_setr_* of them by way of memory.)
HWY_INLINE __m128i four_of_4(const std::byte* from, size_t stride) {
  const __m128i two = _mm_insert_epi32(_mm_cvtsi32_si128(load_4(from)), load_4(from + stride), 1);
  return _mm_insert_epi32(_mm_insert_epi32(two, load_4(from + 2 * stride), 2), load_4(from + 3 * stride), 3);
}
template <size_t kStride>
HWY_INLINE __m256i eight_of_4(const std::byte* from) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(four_of_4(from, kStride)),
                                 four_of_4(from + 4 * kStride, kStride), 1);
}
// By way of general registers: vector units have enough to do.
template <class Stored>
HWY_INLINE int64_t four_scales(const Stored* b) {
  uint64_t low = b[0].d | static_cast<uint64_t>(b[1].d) << 16, high = b[2].d | static_cast<uint64_t>(b[3].d) << 16;
  asm("" : "+r"(low), "+r"(high));
  return static_cast<int64_t>(low | high << 32);
}
template <class Stored>
HWY_INLINE __m256 f16_scales(const Stored* b) {
  return _mm256_cvtph_ps(_mm_set_epi64x(four_scales(b + 4), four_scales(b)));
}

// Scales and offsets side by side, f16 both.
template <class Stored>
HWY_INLINE void load_pairs(const std::byte* from, Unit8& w) {
  const __m512 pairs = _mm512_cvtph_ps(eight_of_4<sizeof(Stored)>(from));
  const __m512i apart = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m512 split = _mm512_permutexvar_ps(apart, pairs);
  w.scales = _mm512_castps512_ps256(split);
  w.offsets = _mm512_extractf32x8_ps(split, 1);
}

template <class Stored>
HWY_INLINE void load_nibbles(const Stored* b, __m512i (&codes)[4]) {
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i, b += 4) {
    __m512i bytes = _mm512_castsi128_si512(load_16(b[0].qs));
    bytes = _mm512_inserti32x4(bytes, load_16(b[1].qs), 1);
    bytes = _mm512_inserti32x4(bytes, load_16(b[2].qs), 2);
    bytes = _mm512_inserti32x4(bytes, load_16(b[3].qs), 3);
    codes[2 * i] = bits(bytes, 15);
    codes[2 * i + 1] = bits(_mm512_srli_epi16(bytes, 4), 15);
  }
}

// The bits of eight numbers of 32 bits, as the fifth bits of codes by halves.
HWY_INLINE void add_fifth_bits(__m256i fifth, __m512i (&codes)[4]) {
  const __m128i low = _mm256_cvtepi32_epi16(fifth), high = _mm256_cvtepi32_epi16(_mm256_srli_epi32(fifth, 16));
  const int64_t which[4] = {_mm_cvtsi128_si64(low), _mm_cvtsi128_si64(high), _mm_extract_epi64(low, 1),
                            _mm_extract_epi64(high, 1)};
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i)
    codes[i] = _mm512_mask_add_epi8(codes[i], static_cast<__mmask64>(which[i]), codes[i], _mm512_set1_epi8(16));
}

template <>
struct Codes<Q4_0Layout> : Q4_0Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto* b = reinterpret_cast<const BlockQ4_0*>(from);
    load_nibbles(b, w.codes);
    w.scales = f16_scales(b);
  }
};

template <>
struct Codes<Q4_1Layout> : Q4_1Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    load_nibbles(reinterpret_cast<const BlockQ4_1*>(from), w.codes);
    load_pairs<BlockQ4_1>(from, w);
  }
};

template <>
struct Codes<Q5_0Layout> : Q5_0Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto* b = reinterpret_cast<const BlockQ5_0*>(from);
    load_nibbles(b, w.codes);
    add_fifth_bits(eight_of_4<sizeof *b>(from + offsetof(BlockQ5_0, qh)), w.codes);
    w.scales = f16_scales(b);
  }
};

template <>
struct Codes<Q5_1Layout> : Q5_1Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    load_nibbles(reinterpret_cast<const BlockQ5_1*>(from), w.codes);
    add_fifth_bits(eight_of_4<sizeof(BlockQ5_1)>(from + offsetof(BlockQ5_1, qh)), w.codes);
    load_pairs<BlockQ5_1>(from, w);
  }
};

template <>
struct Codes<Q8_0Layout> : Q8_0Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto* b = reinterpret_cast<const BlockQ8_0*>(from);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[2 * i].qs));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b[2 * i + 1].qs));
      w.codes[i] = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1),
                                    _mm512_set1_epi8(static_cast<char>(0x80)));
    }
    w.scales = f16_scales(b);
  }
};

// Levels of four bits, raised so that none is negative.
template <int kRaised>
HWY_INLINE void look_up(const int8_t (&levels)[16], __m512i (&codes)[4]) {
  const __m128i raised = _mm_add_epi8(load_16(levels), _mm_set1_epi8(kRaised));
  const __m512i table = _mm512_broadcast_i32x4(raised);
#pragma GCC unroll 4
  for (__m512i& code : codes) code = _mm512_shuffle_epi8(table, code);
}

template <>
struct Codes<IQ4_NLLayout> : IQ4_NLLayout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto* b = reinterpret_cast<const BlockIQ4_NL*>(from);
    load_nibbles(b, w.codes);
    look_up<127>(kIq4Levels, w.codes);
    w.scales = f16_scales(b);
  }
};

template <>
struct Codes<MXFP4Layout> : MXFP4Layout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto* b = reinterpret_cast<const BlockMXFP4*>(from);
    load_nibbles(b, w.codes);
    look_up<12>(kMxfp4Levels, w.codes);
    // e8m0_to_half_float(): 2^(e - 128), below the normal numbers for e < 2
    const __m256i e = _mm256_and_si256(eight_of_4<sizeof *b>(from), _mm256_set1_epi32(255));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i scales = _mm256_mask_mov_epi32(normal, _mm256_cmplt_epi32_mask(e, _mm256_set1_epi32(2)), small);
    w.scales = _mm256_castsi256_ps(scales);
  }
};

// --- blocks of 256

// Q4_K's and Q5_K's eight scales, then eight minima, of 6 bits each; d and dmin lie side by side.
HWY_INLINE void load_six_bits(const uint8_t* packed, const void* d_dmin, Unit8& w) {
  const __m128i p = load_16(packed);  // 12 bytes, and codes that nothing picks
  const __m128i low = _mm_shuffle_epi8(p, _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11));
  const __m128i high = _mm_shuffle_epi8(p, _mm_setr_epi8(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7));
  const __m128i shifted = _mm_srlv_epi16(low, _mm_setr_epi16(0, 0, 0, 0, 0, 0, 4, 4));
  const __m128i low_bits = _mm_and_si128(shifted, _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
  const __m128i codes = _mm_ternarylogic_epi32(_mm_srli_epi16(high, 2), _mm_set1_epi8(0x30), low_bits, 0xEA);
  const __m512 factors = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                               _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(load_4(d_dmin)))));
  const __m512 both = _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)));
  w.scales = _mm512_castps512_ps256(both);
  w.offsets = _mm512_extractf32x8_ps(both, 1);
}

HWY_INLINE void load_nibbles(const uint8_t (&qs)[128], __m512i (&codes)[4]) {
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i) {
    const __m512i bytes = load_64(qs + 64 * i);
    codes[2 * i] = bits(bytes, 15);
    codes[2 * i + 1] = bits(_mm512_srli_epi16(bytes, 4), 15);
  }
}

template <>
struct Codes<Q4_KLayout> : Q4_KLayout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto& block = *reinterpret_cast<const BlockQ4_K*>(from);
    load_nibbles(block.qs, w.codes);
    load_six_bits(block.scales, &block.d, w);
  }
};

template <>
struct Codes<Q5_KLayout> : Q5_KLayout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto& block = *reinterpret_cast<const BlockQ5_K*>(from);
    load_nibbles(block.qs, w.codes);
    // Bit b of a byte belongs to block b; vectors hold the blocks 0 and 2, 1 and 3, 4 and 6, 5 and 7.
    const __m512i fifth = _mm512_srlv_epi16(twice_32(block.qh), halves(0, 2));
    w.codes[0] = bits_or(_mm512_slli_epi16(fifth, 4), 16, w.codes[0]);
    w.codes[1] = bits_or(_mm512_slli_epi16(fifth, 3), 16, w.codes[1]);
    w.codes[2] = bits_or(fifth, 16, w.codes[2]);
    w.codes[3] = bits_or(_mm512_srli_epi16(fifth, 1), 16, w.codes[3]);
    load_six_bits(block.scales, &block.d, w);
  }
};

template <>
struct Codes<Q6_KLayout> : Q6_KLayout {
  static HWY_INLINE void load(const std::byte* from, Unit16& w) {
    const auto& block = *reinterpret_cast<const BlockQ6_K*>(from);
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; ++half) {  // byte j of 64 has codes j and j + 64; their upper bits lie in fours
      const __m512i lower = load_64(block.ql + 64 * half), upper = twice_32(block.qh + 32 * half);
      w.codes[2 * half] = bits_or(_mm512_sllv_epi16(upper, halves(4, 2)), 0x30, bits(lower, 15));
      w.codes[2 * half + 1] =
          bits_or(_mm512_srlv_epi16(upper, halves(0, 2)), 0x30, bits(_mm512_srli_epi16(lower, 4), 15));
    }
    const __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(block.scales)));
    w.scales = _mm512_mul_ps(f16_everywhere(block.d), scales);
  }
};

HWY_INLINE void load_crumbs(const uint8_t (&qs)[64], __m512i (&codes)[4]) {
  const __m512i bytes = load_64(qs);
  codes[0] = bits(bytes, 3);
  codes[1] = bits(_mm512_srli_epi16(bytes, 2), 3);
  codes[2] = bits(_mm512_srli_epi16(bytes, 4), 3);
  codes[3] = bits(_mm512_srli_epi16(bytes, 6), 3);
}

template <>
struct Codes<Q2_KLayout> : Q2_KLayout {
  static HWY_INLINE void load(const std::byte* from, Unit16& w) {
    const auto& block = *reinterpret_cast<const BlockQ2_K*>(from);
    load_crumbs(block.qs, w.codes);
    const __m512i both = _mm512_cvtepu8_epi32(load_16(block.scales));
    const __m512i scales = _mm512_and_si512(both, _mm512_set1_epi32(15)), minima = _mm512_srli_epi32(both, 4);
    w.scales = _mm512_mul_ps(f16_everywhere(block.d), _mm512_cvtepi32_ps(scales));
    w.offsets = _mm512_mul_ps(f16_everywhere(block.dmin), _mm512_cvtepi32_ps(minima));
  }
};

template <>
struct Codes<Q3_KLayout> : Q3_KLayout {
  static HWY_INLINE void load(const std::byte* from, Unit16& w) {
    const auto& block = *reinterpret_cast<const BlockQ3_K*>(from);
    load_crumbs(block.qs, w.codes);
    // Bit b of a byte is the third bit of its value in 32 values b; vectors hold 0 and 4, 1 and 5, ...
    const __m512i third = _mm512_srlv_epi16(twice_32(block.hmask), halves(0, 4));
    w.codes[0] = bits_or(_mm512_slli_epi16(third, 2), 4, w.codes[0]);
    w.codes[1] = bits_or(_mm512_slli_epi16(third, 1), 4, w.codes[1]);
    w.codes[2] = bits_or(third, 4, w.codes[2]);
    w.codes[3] = bits_or(_mm512_srli_epi16(third, 1), 4, w.codes[3]);
    const __m512i low_shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    const __m512i high_shifts = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    int64_t low_bytes;
    std::memcpy(&low_bytes, block.scales, sizeof low_bytes);
    const __m512i low = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi64x(low_bytes)), low_shifts);
    const __m512i high = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_set1_epi32(load_4(block.scales + 8))), high_shifts);
    const __m512i codes = _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)),
                                          _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(3)), 4));
    const __m512 scales = _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(32)));
    w.scales = _mm512_mul_ps(f16_everywhere(block.d), scales);
  }
};

template <>
struct Codes<IQ4_XSLayout> : IQ4_XSLayout {
  static HWY_INLINE void load(const std::byte* from, Unit8& w) {
    const auto& block = *reinterpret_cast<const BlockIQ4_XS*>(from);
    load_nibbles(block.qs, w.codes);
    look_up<127>(kIq4Levels, w.codes);
    const __m256i eighths = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(load_4(block.scales_l)), _mm256_slli_epi32(eighths, 2));
    const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(block.scales_h), _mm256_slli_epi32(eighths, 1));
    const __m256i codes = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)),
                                          _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    const __m256 scales = _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(32)));
    const __m256 d = _mm512_castps512_ps256(f16_everywhere(block.d));
    w.scales = _mm256_mul_ps(d, scales);
  }
};

// A unit of which `left` values are there, or more.
template <class Type>
HWY_INLINE void load_unit(const std::byte* from, size_t left, WeightUnit<Type>& w) {
  if constexpr (requires { Type::kSmallBlocks; }) {
    if (left < kUnitValues) {
      alignas(64) std::byte padded[Type::kUnitBytes] = {};
      std::memcpy(padded, from, left / 32 * (Type::kUnitBytes / 8));
      return Type::load(padded, w);
    }
  }
  Type::load(from, w);
}

}  // namespace
}  // namespace godwit::cpu
GODWIT_AVX512_END
