// Stored weights as vectors of 32 bf16 numbers: one class per type, each value what dequantize() gives, rounded to
// nearest even. To be included in Highway's AVX3 pass only, after dequant_blocks-inl.h.
//
// A class offers kUnitBytes, the bytes of 256 values, and unit<8>(from, sink), which hands their eight vectors to
// sink.put(i, vector). Types of smaller blocks have kSmallBlocks and unit<1>, too, for 32 values; plain numbers,
// partial(from, count, sink) for fewer.
//
// Decoding is bound by the work per block. Codes of the usual types are looked up in a table of bf16 numbers per block,
// and scales are kept in memory, from where a multiplication broadcasts them for free.
#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/bf16_vectors.h"
#include "base/check.h"
#include "tensor/quant.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// The compiler shall not keep scales in registers: to broadcast a float from there costs a shuffle.
template <size_t kCount>
HWY_INLINE void leave_in_memory(float (&values)[kCount]) {
  asm("" : "+m"(values));
}

HWY_INLINE __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
HWY_INLINE __m256i load_32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// --- plain numbers

struct Bf16Numbers {
  static HWY_INLINE __m512i convert(__m512i bits) { return bits; }
};

struct F16Numbers {
  static HWY_INLINE __m512i convert(__m512i bits) {
    return to_bf16(_mm512_cvtph_ps(_mm512_castsi512_si256(bits)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1)));
  }
};

template <class Numbers>
struct PlainType {
  static constexpr bool kSmallBlocks = true;
  static constexpr size_t kUnitBytes = 512;
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
#pragma GCC unroll 8
    for (size_t i = 0; i < kCount; ++i) sink.put(i, Numbers::convert(_mm512_loadu_si512(from + 64 * i)));
  }
  template <class Sink>
  HWY_INLINE void partial(const std::byte* from, size_t count, Sink& sink) const {
    sink.put(0, Numbers::convert(_mm512_maskz_loadu_epi16((uint32_t{1} << count) - 1, from)));
  }
};

// --- blocks of 32 that begin with an f16 scale

// Four scales side by side, in a general register: vector units have enough to do.
template <class Stored>
HWY_INLINE int64_t four_scales(const Stored* b) {
  uint64_t low = b[0].d | static_cast<uint64_t>(b[1].d) << 16, high = b[2].d | static_cast<uint64_t>(b[3].d) << 16;
  asm("" : "+r"(low), "+r"(high));
  return static_cast<int64_t>(low | high << 32);
}

template <class Stored>
HWY_INLINE void load_scales(const Stored* blocks, float (&scales)[8]) {
  _mm256_store_ps(scales, _mm256_cvtph_ps(_mm_set_epi64x(four_scales(blocks + 4), four_scales(blocks))));
  leave_in_memory(scales);
}

template <class Stored>
HWY_INLINE void load_scales(const Stored* block, float (&scales)[1]) {
  scales[0] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(block->d)));
}

// Codes of 16 bytes, low halves before high ones, as indices of a table of 32 bf16 numbers.
HWY_INLINE __m512i nibble_indices(const uint8_t* codes, __m512i offset) {
  const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  const __m512i twice = _mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(load_16(codes)));
  const __m512i words = _mm512_srlv_epi16(twice, shifts);
  return _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(15), offset, 0xEA);  // (words & 15) | offset
}

inline constexpr Levels kQ4_0({-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});

// Q4_0 and IQ4_NL: scale * level[code]. Two blocks share a table of 2 * 16 values.
template <class Stored, const Levels& kLevels>
struct LevelsType {
  static constexpr bool kSmallBlocks = true;
  static constexpr size_t kUnitBytes = 8 * sizeof(Stored);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    const auto* blocks = reinterpret_cast<const Stored*>(from);
    const __m512 levels = _mm512_loadu_ps(kLevels.values);
    const __m512i lower = _mm512_setzero_si512(), upper = _mm512_set1_epi16(16);
    alignas(32) float scales[kCount];
    load_scales(blocks, scales);
#pragma GCC unroll 4
    for (size_t i = 0; i < kCount; i += 2) {
      const size_t other = kCount == 1 ? i : i + 1;
      const __m512i table = to_bf16(_mm512_mul_ps(levels, _mm512_set1_ps(scales[i])),
                                    _mm512_mul_ps(levels, _mm512_set1_ps(scales[other])));
      sink.put(i, _mm512_permutexvar_epi16(nibble_indices(blocks[i].qs, lower), table));
      if (kCount > 1) sink.put(other, _mm512_permutexvar_epi16(nibble_indices(blocks[other].qs, upper), table));
    }
  }
};

// Sixteen signed bytes times a scale.
HWY_INLINE __m512 scaled(const int8_t* codes, float scale) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(codes))), _mm512_set1_ps(scale));
}

struct Q8_0Type {
  static constexpr bool kSmallBlocks = true;
  static constexpr size_t kUnitBytes = 8 * sizeof(BlockQ8_0);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    const auto* blocks = reinterpret_cast<const BlockQ8_0*>(from);
    alignas(32) float scales[kCount];
    load_scales(blocks, scales);
#pragma GCC unroll 8
    for (size_t i = 0; i < kCount; ++i)
      sink.put(i, to_bf16(scaled(blocks[i].qs, scales[i]), scaled(blocks[i].qs + 16, scales[i])));
  }
};

// --- blocks of 256

HWY_INLINE __m512 zero_to_fifteen() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Q4_K's and Q5_K's eight scales, then eight minima, of 6 bits each.
HWY_INLINE void load_six_bits(const uint8_t* packed, uint16_t d, uint16_t dmin, float (&scales_and_minima)[16]) {
  uint32_t p[3];
  std::memcpy(p, packed, sizeof p);
  const uint32_t scales_high = (p[2] & 0x0F0F0F0F) | (p[0] >> 6 & 0x03030303) << 4;
  const uint32_t minima_high = (p[2] >> 4 & 0x0F0F0F0F) | (p[1] >> 6 & 0x03030303) << 4;
  const __m128i codes = _mm_setr_epi32(static_cast<int>(p[0] & 0x3F3F3F3F), static_cast<int>(scales_high),
                                       static_cast<int>(p[1] & 0x3F3F3F3F), static_cast<int>(minima_high));
  const __m512 factors = _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_set1_epi16(static_cast<int16_t>(d)),
                                                                 _mm_set1_epi16(static_cast<int16_t>(dmin)), 1));
  _mm512_store_ps(scales_and_minima, _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes))));
  leave_in_memory(scales_and_minima);
}

struct Q4_KType {
  static constexpr size_t kUnitBytes = sizeof(BlockQ4_K);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    const auto& block = *reinterpret_cast<const BlockQ4_K*>(from);
    alignas(64) float factors[16];
    load_six_bits(block.scales, block.d, block.dmin, factors);
    const __m512 codes = zero_to_fifteen();
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {  // 32 bytes: a group in the low halves, the next in the high ones; one table
      const float *scale = factors + 2 * i, *minimum = scale + 8;
      const __m512i table = to_bf16(_mm512_fmsub_ps(codes, _mm512_set1_ps(scale[0]), _mm512_set1_ps(minimum[0])),
                                    _mm512_fmsub_ps(codes, _mm512_set1_ps(scale[1]), _mm512_set1_ps(minimum[1])));
      const __m512i words = _mm512_cvtepu8_epi16(load_32(block.qs + 32 * i));
      const __m512i low = _mm512_and_si512(words, _mm512_set1_epi16(15));
      const __m512i high = _mm512_or_si512(_mm512_srli_epi16(words, 4), _mm512_set1_epi16(16));
      sink.put(2 * i, _mm512_permutexvar_epi16(low, table));
      sink.put(2 * i + 1, _mm512_permutexvar_epi16(high, table));
    }
  }
};

struct Q5_KType {
  static constexpr size_t kUnitBytes = sizeof(BlockQ5_K);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    const auto& block = *reinterpret_cast<const BlockQ5_K*>(from);
    alignas(64) float factors[16];
    load_six_bits(block.scales, block.d, block.dmin, factors);
    const __m512 codes = zero_to_fifteen(), upper_codes = _mm512_add_ps(codes, _mm512_set1_ps(16));
    const __m512i fifth = _mm512_cvtepu8_epi16(load_32(block.qh));
#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; ++i) {  // bit i of qh is the fifth bit
      const __m512 scale = _mm512_set1_ps(factors[i]), minimum = _mm512_set1_ps(factors[8 + i]);
      const __m512i table =
          to_bf16(_mm512_fmsub_ps(codes, scale, minimum), _mm512_fmsub_ps(upper_codes, scale, minimum));
      const __m512i words = _mm512_cvtepu8_epi16(load_32(block.qs + i / 2 * 32));
      const __m512i low = i % 2 == 0 ? words : _mm512_srli_epi16(words, 4);
      const __m512i high =
          i < 4 ? _mm512_slli_epi16(fifth, i < 4 ? 4 - i : 0) : _mm512_srli_epi16(fifth, i < 4 ? 0 : i - 4);
      const __m512i indices = _mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, high, 0xCA);  // 15 ? low : high
      sink.put(i, _mm512_permutexvar_epi16(indices, table));
    }
  }
};

struct Q6_KType {
  static constexpr size_t kUnitBytes = sizeof(BlockQ6_K);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    const auto& block = *reinterpret_cast<const BlockQ6_K*>(from);
    alignas(64) int8_t codes[256];
    unpack(block, codes);
    alignas(64) float scales[16];
    const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(block.d)));
    _mm512_store_ps(scales, _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(block.scales)))));
    leave_in_memory(scales);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i)
      sink.put(i, to_bf16(scaled(codes + 32 * i, scales[2 * i]), scaled(codes + 32 * i + 16, scales[2 * i + 1])));
  }

 private:
  // Per half, byte j of 64 holds codes j and j + 64, and their upper two bits lie in fours.
  static HWY_INLINE void unpack(const BlockQ6_K& block, int8_t* codes) {
    const __m512i low_bits = _mm512_set1_epi8(15), high_bits = _mm512_set1_epi8(0x30), middle = _mm512_set1_epi8(32);
    const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
    for (size_t half = 0; half < 2; ++half, codes += 128) {
      const __m512i lower = _mm512_loadu_si512(block.ql + 64 * half);
      const __m512i upper = _mm512_broadcast_i64x4(load_32(block.qh + 32 * half));
      const __m512i first =
          _mm512_ternarylogic_epi32(_mm512_sllv_epi16(upper, left), high_bits, _mm512_and_si512(lower, low_bits), 0xEA);
      const __m512i second = _mm512_ternarylogic_epi32(_mm512_srlv_epi16(upper, right), high_bits,
                                                       _mm512_and_si512(_mm512_srli_epi16(lower, 4), low_bits), 0xEA);
      _mm512_store_si512(codes, _mm512_sub_epi8(first, middle));
      _mm512_store_si512(codes + 64, _mm512_sub_epi8(second, middle));
    }
  }
};

// --- the rest: through fp32

template <class Block, class Stored>
struct SmallBlockType {  // a Block of dequant_blocks-inl.h that covers a whole Stored of 32
  static constexpr bool kSmallBlocks = true;
  static constexpr size_t kUnitBytes = 8 * sizeof(Stored);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    for (size_t i = 0; i < kCount; ++i) {
      const Block block(from + i * sizeof(Stored), 0);
      sink.put(i, to_bf16(block.vec(0).raw, block.vec(1).raw));
    }
  }
};

struct IQ4_XSType {
  static constexpr size_t kUnitBytes = sizeof(BlockIQ4_XS);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    for (size_t i = 0; i < 8; ++i) {
      const Iq4XsBlock block(from, i);
      sink.put(i, to_bf16(block.vec(0).raw, block.vec(1).raw));
    }
  }
};

template <DType kType, class Stored>
struct DequantizedType {
  static constexpr size_t kUnitBytes = sizeof(Stored);
  template <size_t kCount, class Sink>
  HWY_INLINE void unit(const std::byte* from, Sink& sink) const {
    alignas(64) float values[kSuperBlock];
    dequantize(kType, from, values, kSuperBlock);
    for (size_t i = 0; i < 8; ++i)
      sink.put(i, to_bf16(_mm512_load_ps(values + 32 * i), _mm512_load_ps(values + 32 * i + 16)));
  }
};

// Hands vectors on and prefetches a line of the unit that lies ahead with each: all at once would fill the queue. Into
// the second cache: into the first, a sixth less comes from memory (Zen 4).
template <class Type, class Sink>
struct PrefetchingSink {
  static_assert(Type::kUnitBytes <= 8 * 64);
  Sink& sink;
  const std::byte* ahead;
  HWY_INLINE void put(size_t block, __m512i values) {
    if (64 * block < Type::kUnitBytes) _mm_prefetch(reinterpret_cast<const char*>(ahead) + 64 * block, _MM_HINT_T1);
    sink.put(block, values);
  }
};

template <class Type, class Sink>
HWY_INLINE void walk_unit(const std::byte* from, ptrdiff_t ahead, Sink& sink) {
  PrefetchingSink<Type, Sink> prefetching{sink, from + ahead};
  Type().template unit<8>(from, prefetching);
  sink.skip(8);
}

// The last, less than 256 values of a row.
template <class Type, class Sink>
HWY_INLINE void walk_rest(const std::byte* from, size_t count, Sink& sink) {
  const Type type;
  if constexpr (requires { Type::kSmallBlocks; }) {
    for (; count >= kBf16Block; count -= kBf16Block, from += Type::kUnitBytes / 8, sink.skip(1))
      type.template unit<1>(from, sink);
    if constexpr (requires { type.partial(from, count, sink); })
      if (count != 0) type.partial(from, count, sink);
  }
}

// Values [k, k + count) of a weight row to a sink, of which skip(n) makes block 0 what was block n. What lies `ahead`
// bytes further on is prefetched meanwhile.
template <class Type, class Sink>
HWY_INLINE void walk_row(const std::byte* row, size_t k, size_t count, ptrdiff_t ahead, Sink sink) {
  const std::byte* from = row + k / kSuperBlock * Type::kUnitBytes;
  for (; count >= kSuperBlock; count -= kSuperBlock, from += Type::kUnitBytes) walk_unit<Type>(from, ahead, sink);
  walk_rest<Type>(from, count, sink);
}

// What Functions::of<Type>() gives for the class of a type.
template <class Functions>
auto bf16_function(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Functions::template of<PlainType<F16Numbers>>();
    case DType::kQ8_0:
      return Functions::template of<Q8_0Type>();
    case DType::kQ4_0:
      return Functions::template of<LevelsType<BlockQ4_0, kQ4_0>>();
    case DType::kQ4_1:
      return Functions::template of<SmallBlockType<AffineBlock<BlockQ4_1>, BlockQ4_1>>();
    case DType::kQ5_0:
      return Functions::template of<SmallBlockType<OffsetBlock<BlockQ5_0, 16>, BlockQ5_0>>();
    case DType::kQ5_1:
      return Functions::template of<SmallBlockType<AffineBlock<BlockQ5_1>, BlockQ5_1>>();
    case DType::kQ2_K:
      return Functions::template of<DequantizedType<DType::kQ2_K, BlockQ2_K>>();
    case DType::kQ3_K:
      return Functions::template of<DequantizedType<DType::kQ3_K, BlockQ3_K>>();
    case DType::kQ4_K:
      return Functions::template of<Q4_KType>();
    case DType::kQ5_K:
      return Functions::template of<Q5_KType>();
    case DType::kQ6_K:
      return Functions::template of<Q6_KType>();
    case DType::kIQ4_NL:
      return Functions::template of<LevelsType<BlockIQ4_NL, kIq4>>();
    case DType::kIQ4_XS:
      return Functions::template of<IQ4_XSType>();
    case DType::kMXFP4:
      return Functions::template of<SmallBlockType<Mxfp4Block, BlockMXFP4>>();
    case DType::kBF16:
    case DType::kF32:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(dtype == DType::kBF16, "{} weights are not multiplied in bf16", dtype_name(dtype));
  return Functions::template of<PlainType<Bf16Numbers>>();
}

}  // namespace
}  // namespace godwit::cpu::HWY_NAMESPACE
GODWIT_BF16_END
