// One function per stored type. Those that models mostly come in look codes up in a table of bf16 numbers per block or
// keep scales in memory, where a multiplication broadcasts them for free: decoding is bound by the work per block. The
// rest go through the fp32 vectors of dequant-inl.h.
#include "backend/cpu/bf16_expand.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_expand.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX3
#include <algorithm>

#include <immintrin.h>

#include "backend/cpu/dequant_blocks-inl.h"
#include "base/check.h"
#include "tensor/quant.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace godwit::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

HWY_INLINE void store(const Bf16Blocks& out, size_t block, __m512i values) {
  _mm512_store_si512(out.to + block * out.stride, values);
}

HWY_INLINE void prefetch(const void* data, size_t ahead) {
  _mm_prefetch(static_cast<const char*>(data) + ahead, _MM_HINT_T0);
}

HWY_INLINE __mmask32 first_lanes(size_t count) {
  return count >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((uint32_t{1} << count) - 1);
}

void expand_bf16(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const auto* from = reinterpret_cast<const uint16_t*>(row) + k;
  for (size_t i = 0; i < count; i += kBf16Block) {
    prefetch(from + i, ahead);
    store(out, i / kBf16Block, _mm512_maskz_loadu_epi16(first_lanes(count - i), from + i));
  }
}

void expand_f16(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const auto* from = reinterpret_cast<const uint16_t*>(row) + k;
  for (size_t i = 0; i < count; i += kBf16Block) {
    prefetch(from + i, ahead);
    const __m512i halves = _mm512_maskz_loadu_epi16(first_lanes(count - i), from + i);
    store(out, i / kBf16Block,
          to_bf16(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                  _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))));
  }
}

// The f16 scales of up to eight blocks, which begin with them.
template <class Stored>
HWY_INLINE void load_scales(const Stored* blocks, size_t count, float* scales) {
  uint64_t halves[2] = {};
  for (size_t i = 0; i < count; ++i) halves[i / 4] |= static_cast<uint64_t>(blocks[i].d) << (16 * (i % 4));
  const __m128i packed = _mm_set_epi64x(static_cast<int64_t>(halves[1]), static_cast<int64_t>(halves[0]));
  _mm256_store_ps(scales, _mm256_cvtph_ps(packed));
}

// Codes of a Q4_0 or IQ4_NL block, low halves before high ones, as indices of a table of 32 bf16 numbers.
HWY_INLINE __m512i nibble_indices(const uint8_t* codes, __m512i offset) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  const __m512i words = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), shifts);
  return _mm512_ternarylogic_epi32(words, _mm512_set1_epi16(15), offset, 0xEA);  // (words & 15) | offset
}

// scale * level[code]: two blocks share a table of 2 * 16 values.
template <class Stored>
HWY_INLINE void expand_levels(const Stored* blocks, size_t count, size_t ahead, __m512 levels, const Bf16Blocks& out) {
  constexpr size_t kBatch = 8;
  const __m512i none = _mm512_setzero_si512(), upper = _mm512_set1_epi16(16);
  alignas(32) float scales[kBatch];
  for (size_t i = 0; i < count; i += kBatch) {
    const size_t batch = std::min(kBatch, count - i);
    load_scales(blocks + i, batch, scales);
    for (size_t j = 0; j < batch; j += 2) {
      const Stored* block = blocks + i + j;
      prefetch(block, ahead);
      const __m512i table = to_bf16(_mm512_mul_ps(levels, _mm512_set1_ps(scales[j])),
                                    _mm512_mul_ps(levels, _mm512_set1_ps(scales[j + 1])));
      store(out, i + j, _mm512_permutexvar_epi16(nibble_indices(block[0].qs, none), table));
      if (j + 1 == batch) break;
      store(out, i + j + 1, _mm512_permutexvar_epi16(nibble_indices(block[1].qs, upper), table));
    }
  }
}

void expand_q4_0(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const __m512 levels = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  expand_levels(reinterpret_cast<const BlockQ4_0*>(row) + k / 32, count / 32, ahead, levels, out);
}

void expand_iq4_nl(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const __m512 levels = _mm512_loadu_ps(kIq4.values);
  expand_levels(reinterpret_cast<const BlockIQ4_NL*>(row) + k / 32, count / 32, ahead, levels, out);
}

// Sixteen signed bytes times a scale.
HWY_INLINE __m512 scaled(const int8_t* codes, float scale) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(scale));
}

void expand_q8_0(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  constexpr size_t kBatch = 8;
  const auto* blocks = reinterpret_cast<const BlockQ8_0*>(row) + k / 32;
  alignas(32) float scales[kBatch];
  for (size_t i = 0; i < count / 32; i += kBatch) {
    const size_t batch = std::min(kBatch, count / 32 - i);
    load_scales(blocks + i, batch, scales);
    for (size_t j = 0; j < batch; ++j) {
      const BlockQ8_0& block = blocks[i + j];
      prefetch(&block, ahead);
      store(out, i + j, to_bf16(scaled(block.qs, scales[j]), scaled(block.qs + 16, scales[j])));
    }
  }
}

// Q4_K's and Q5_K's eight scales, then eight minima, of 6 bits each.
HWY_INLINE void load_six_bits(const uint8_t* packed, uint16_t d, uint16_t dmin, float* scales_and_minima) {
  uint32_t p[3];
  std::memcpy(p, packed, sizeof p);
  const uint32_t scales_high = (p[2] & 0x0F0F0F0F) | (p[0] >> 6 & 0x03030303) << 4;
  const uint32_t minima_high = (p[2] >> 4 & 0x0F0F0F0F) | (p[1] >> 6 & 0x03030303) << 4;
  const __m128i codes = _mm_setr_epi32(static_cast<int>(p[0] & 0x3F3F3F3F), static_cast<int>(scales_high),
                                       static_cast<int>(p[1] & 0x3F3F3F3F), static_cast<int>(minima_high));
  const __m512 factors = _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_set1_epi16(static_cast<int16_t>(d)),
                                                                 _mm_set1_epi16(static_cast<int16_t>(dmin)), 1));
  _mm512_store_ps(scales_and_minima, _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes))));
}

void expand_q4_k(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const auto* blocks = reinterpret_cast<const BlockQ4_K*>(row) + k / 256;
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  alignas(64) float factors[16];
  for (size_t i = 0; i < count / 256; ++i) {
    const BlockQ4_K& block = blocks[i];
    for (size_t line = 0; line < sizeof(block); line += 64) prefetch(&block, line + ahead);
    load_six_bits(block.scales, block.d, block.dmin, factors);
#pragma GCC unroll 4
    for (size_t pair = 0; pair < 4; ++pair) {  // 32 bytes: a group in the low halves, the next in the high ones
      const float *scale = factors + 2 * pair, *minimum = scale + 8;
      const __m512i table = to_bf16(_mm512_fmsub_ps(codes, _mm512_set1_ps(scale[0]), _mm512_set1_ps(minimum[0])),
                                    _mm512_fmsub_ps(codes, _mm512_set1_ps(scale[1]), _mm512_set1_ps(minimum[1])));
      const __m512i words =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.qs + 32 * pair)));
      const __m512i low = _mm512_and_si512(words, _mm512_set1_epi16(15));
      const __m512i high = _mm512_or_si512(_mm512_srli_epi16(words, 4), _mm512_set1_epi16(16));
      store(out, 8 * i + 2 * pair, _mm512_permutexvar_epi16(low, table));
      store(out, 8 * i + 2 * pair + 1, _mm512_permutexvar_epi16(high, table));
    }
  }
}

void expand_q5_k(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const auto* blocks = reinterpret_cast<const BlockQ5_K*>(row) + k / 256;
  const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 upper_codes = _mm512_add_ps(codes, _mm512_set1_ps(16));
  alignas(64) float factors[16];
  for (size_t i = 0; i < count / 256; ++i) {
    const BlockQ5_K& block = blocks[i];
    for (size_t line = 0; line < sizeof(block); line += 64) prefetch(&block, line + ahead);
    load_six_bits(block.scales, block.d, block.dmin, factors);
    const __m512i fifth = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.qh)));
#pragma GCC unroll 8
    for (size_t group = 0; group < 8; ++group) {  // bit `group` of qh is the fifth bit
      const __m512 scale = _mm512_set1_ps(factors[group]), minimum = _mm512_set1_ps(factors[8 + group]);
      const __m512i table =
          to_bf16(_mm512_fmsub_ps(codes, scale, minimum), _mm512_fmsub_ps(upper_codes, scale, minimum));
      const __m512i words =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.qs + group / 2 * 32)));
      const __m512i low = group % 2 == 0 ? words : _mm512_srli_epi16(words, 4);
      const __m512i high = group < 4 ? _mm512_slli_epi16(fifth, 4 - static_cast<int>(std::min<size_t>(group, 4)))
                                     : _mm512_srli_epi16(fifth, static_cast<int>(std::max<size_t>(group, 4)) - 4);
      // (low & 15) | (high & 16): bits of the mask choose
      store(out, 8 * i + group,
            _mm512_permutexvar_epi16(_mm512_ternarylogic_epi32(_mm512_set1_epi16(15), low, high, 0xCA), table));
    }
  }
}

void expand_q6_k(const std::byte* row, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  const auto* blocks = reinterpret_cast<const BlockQ6_K*>(row) + k / 256;
  const __m512i low_bits = _mm512_set1_epi8(15), high_bits = _mm512_set1_epi8(0x30), middle = _mm512_set1_epi8(32);
  const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
  const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
  alignas(64) float scales[16];
  alignas(64) int8_t codes[256];
  for (size_t i = 0; i < count / 256; ++i) {
    const BlockQ6_K& block = blocks[i];
    for (size_t line = 0; line < sizeof(block); line += 64) prefetch(&block, line + ahead);
    for (size_t half = 0; half < 2; ++half) {  // byte j of 64 holds codes j and j + 64, their upper bits lie in fours
      const __m512i lower = _mm512_loadu_si512(block.ql + 64 * half);
      const __m512i upper =
          _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block.qh + 32 * half)));
      const __m512i first =
          _mm512_ternarylogic_epi32(_mm512_sllv_epi16(upper, left), high_bits, _mm512_and_si512(lower, low_bits), 0xEA);
      const __m512i second = _mm512_ternarylogic_epi32(_mm512_srlv_epi16(upper, right), high_bits,
                                                       _mm512_and_si512(_mm512_srli_epi16(lower, 4), low_bits), 0xEA);
      _mm512_store_si512(codes + 128 * half, _mm512_sub_epi8(first, middle));
      _mm512_store_si512(codes + 128 * half + 64, _mm512_sub_epi8(second, middle));
    }
    const __m512i factors = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block.scales)));
    const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(block.d)));
    _mm512_store_ps(scales, _mm512_mul_ps(d, _mm512_cvtepi32_ps(factors)));
#pragma GCC unroll 8
    for (size_t j = 0; j < 8; ++j)
      store(out, 8 * i + j,
            to_bf16(scaled(codes + 32 * j, scales[2 * j]), scaled(codes + 32 * j + 16, scales[2 * j + 1])));
  }
}

// Types with a reader of fp32 vectors: two of them make a block.
template <class Row>
void expand_vectors(const std::byte* data, size_t k, size_t count, size_t ahead, const Bf16Blocks& out) {
  constexpr size_t kStep = Row::kVecs * kLanes;
  const Row row(data);
  size_t at = 0;
  for (size_t step = k / kStep; step < (k + count) / kStep; ++step) {
    prefetch(row.at(step), ahead);
    const auto block = row.block(step);
#pragma GCC unroll 8
    for (size_t i = 0; i < Row::kVecs; i += 2) store(out, at++, to_bf16(block.vec(i).raw, block.vec(i + 1).raw));
  }
}

// Types without one.
template <DType kType>
void expand_any(const std::byte* row, size_t k, size_t count, size_t, const Bf16Blocks& out) {
  alignas(64) float values[kSuperBlock];
  for (size_t i = 0; i < count; i += kSuperBlock) {
    dequantize(kType, row + dtype_bytes(kType, k + i), values, kSuperBlock);
    for (size_t j = 0; j < kSuperBlock; j += kBf16Block)
      store(out, (i + j) / kBf16Block, to_bf16(_mm512_load_ps(values + j), _mm512_load_ps(values + j + 16)));
  }
}

}  // namespace

ExpandRow expand_row_to_bf16(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return expand_f16;
    case DType::kBF16:
      return expand_bf16;
    case DType::kQ8_0:
      return expand_q8_0;
    case DType::kQ4_0:
      return expand_q4_0;
    case DType::kQ4_1:
      return expand_vectors<Q4_1Row>;
    case DType::kQ5_0:
      return expand_vectors<Q5_0Row>;
    case DType::kQ5_1:
      return expand_vectors<Q5_1Row>;
    case DType::kQ2_K:
      return expand_any<DType::kQ2_K>;
    case DType::kQ3_K:
      return expand_any<DType::kQ3_K>;
    case DType::kQ4_K:
      return expand_q4_k;
    case DType::kQ5_K:
      return expand_q5_k;
    case DType::kQ6_K:
      return expand_q6_k;
    case DType::kIQ4_NL:
      return expand_iq4_nl;
    case DType::kIQ4_XS:
      return expand_vectors<IQ4_XSRow>;
    case DType::kMXFP4:
      return expand_vectors<MXFP4Row>;
    case DType::kF32:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(false, "{} is not expanded to bf16", dtype_name(dtype));
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace godwit::cpu {
ExpandRow expand_row_to_bf16(DType dtype) {
  return N_AVX3::expand_row_to_bf16(dtype);
}
}  // namespace godwit::cpu
#endif
