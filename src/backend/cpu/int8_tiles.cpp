#include "backend/cpu/int8_tiles.h"

#include <algorithm>

#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_strips-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

constexpr float kNothing = 1e-30F;  // and less

HWY_INLINE __m512i magnitude_bits(__m512 values) {
  return _mm512_andnot_si512(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(values));
}
// Compared as whole numbers, magnitudes keep their order, and NaN is the largest.
HWY_INLINE float largest_magnitude(__m512i bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(bits)))));
}
HWY_INLINE float inverse_step(float largest) {
  return largest < kNothing ? 0 : 127 / largest;
}
HWY_INLINE float step(float largest) {
  return largest < kNothing ? 0 : largest / 127 + (largest - largest);  // NaN where it is not finite
}

// --- weights

// A weight is factor * (code - constant) + offset steps.
//
// Codes of four bits times factors in 256ths of a step, and offsets with what rounds, are sums of 16 bits, whose upper
// byte is the weight; what passes 16 bits on the way comes back. Factors of wider codes would be too coarse: those
// times a power of two take the upper bits of 16, so that the upper bits of their product with a factor are the weight
// in 32nds or 64ths of a step.
template <class Type>
struct Rounded {
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr int kConstant = kOffsets ? 0 : kX.constant;
  static constexpr int kLargest = std::max(kConstant, Type::kLargestCode - kConstant);
  static constexpr int kShift = kLargest <= 4    ? 5
                                : kLargest <= 8  ? 4
                                : kLargest <= 16 ? 3
                                : kLargest <= 32 ? 2
                                : kLargest <= 64 ? 1
                                                 : 0;
  static constexpr bool kNarrow = Type::kLargestCode <= 15;
  static constexpr int kFraction = kNarrow ? 8 : kOffsets ? 5 : 6;  // codes may span twice what weights do
  static constexpr auto kFactorOne = static_cast<float>(kNarrow ? 256 : 1 << (8 + kFraction - kShift));

  struct Unit {  // of each group
    __m512i factors, offsets;
    float scale;
  };

  static HWY_INLINE __m512 widened(__m256 v) { return _mm512_zextps256_ps512(v); }
  static HWY_INLINE __m512 widened(__m512 v) { return v; }
  static HWY_INLINE __m512i whole(__m512 v) {
    return _mm512_castsi256_si512(_mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
  }

  // What is added to products of codes: an offset in 256ths of a step, half a step, and less a constant's product.
  static HWY_INLINE __m512i sums(__m512i offsets, __m512i factors) {
    if constexpr (!kNarrow) return offsets;
    const __m512i constants = _mm512_mullo_epi16(factors, _mm512_set1_epi16(kConstant));
    return _mm512_sub_epi16(_mm512_add_epi16(offsets, _mm512_set1_epi16(128)), constants);
  }

  static HWY_INLINE Unit unit(const WeightUnit<Type>& w) {
    const __m512 scales = widened(w.scales);
    const __m512 range = _mm512_mul_ps(scales, _mm512_set1_ps(kLargest));
    if constexpr (kOffsets) {
      __m512 offsets = widened(w.offsets);
      if (kX.offsets == Offsets::kSubtracted) offsets = _mm512_sub_ps(_mm512_setzero_ps(), offsets);
      const float largest =
          largest_magnitude(_mm512_max_epu32(magnitude_bits(offsets), magnitude_bits(_mm512_add_ps(range, offsets))));
      const float inverse = inverse_step(largest);
      const __m512i factors = whole(_mm512_mul_ps(scales, _mm512_set1_ps(inverse * kFactorOne)));
      return {factors, sums(whole(_mm512_mul_ps(offsets, _mm512_set1_ps(inverse * (1 << kFraction)))), factors),
              step(largest)};
    } else {
      const float largest = largest_magnitude(magnitude_bits(range));
      const __m512i factors = whole(_mm512_mul_ps(scales, _mm512_set1_ps(inverse_step(largest) * kFactorOne)));
      return {factors, sums(_mm512_setzero_si512(), factors), step(largest)};
    }
  }

  // 16-bit lanes that name the group of each.
  struct Lanes {
    alignas(64) uint16_t group[32];
  };
  static HWY_INLINE __m512i pick(__m512i of_groups, const Lanes& lanes) {
    return _mm512_permutexvar_epi16(_mm512_load_si512(lanes.group), of_groups);
  }
  // Of narrow codes, in 256ths of a step.
  static HWY_INLINE __m512i fine_weights(__m512i codes, __m512i factors, __m512i offsets) {
    return _mm512_add_epi16(_mm512_mullo_epi16(codes, factors), offsets);
  }
  // Of codes as they are if kNarrow, otherwise as high_codes() has them.
  static HWY_INLINE __m512i weights(__m512i codes, __m512i factors, __m512i offsets) {
    if constexpr (kNarrow) return _mm512_srai_epi16(fine_weights(codes, factors, offsets), 8);
    __m512i fine = _mm512_mulhrs_epi16(codes, factors);
    if constexpr (kOffsets) fine = _mm512_add_epi16(fine, offsets);
    return _mm512_mulhrs_epi16(fine, _mm512_set1_epi16(1 << (15 - kFraction)));
  }
  static constexpr size_t group_at(size_t place) { return kX.order[place] / kX.group_places(); }

  // The weights of codes 0 to 15 in each group: four groups to a vector.
  struct Levels {
    alignas(32) int16_t codes[16];
    Lanes pairs[8];  // groups 2 i and 2 i + 1
    constexpr Levels() : codes(), pairs() {
      for (int code = 0; code < 16; ++code) codes[code] = static_cast<int16_t>(code);
      for (size_t pair = 0; pair < 8; ++pair)
        for (size_t lane = 0; lane < 32; ++lane) pairs[pair].group[lane] = static_cast<uint16_t>(2 * pair + lane / 16);
    }
  };
  static constexpr Levels kLevels{};

  static HWY_INLINE __m512i table_of_two(const Unit& unit, __m512i levels, size_t pair) {
    return weights(levels, pick(unit.factors, kLevels.pairs[pair]), pick(unit.offsets, kLevels.pairs[pair]));
  }
  template <size_t kVector>
  static HWY_INLINE __m512i look_up(const __m512i* tables, __m512i codes) {
    constexpr size_t kAt = 4 * kVector, a = group_at(kAt), b = group_at(kAt + 1), c = group_at(kAt + 2),
                     d = group_at(kAt + 3);
    static_assert(a / 4 == b / 4 && c / 4 == d / 4);
    return _mm512_shuffle_epi8(
        _mm512_shuffle_i32x4(tables[a / 4], tables[c / 4], a % 4 | b % 4 << 2 | c % 4 << 4 | d % 4 << 6), codes);
  }
  static HWY_INLINE void store_by_tables(const WeightUnit<Type>& w, const Unit& unit, std::byte* to, size_t stride) {
    const __m512i levels = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(kLevels.codes)));
    const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i tables[kX.groups / 4];
#pragma GCC unroll 4
    for (size_t i = 0; i < kX.groups / 4; ++i)
      tables[i] = _mm512_permutexvar_epi64(
          in_order, _mm512_packs_epi16(table_of_two(unit, levels, 2 * i), table_of_two(unit, levels, 2 * i + 1)));
    _mm512_store_si512(to, look_up<0>(tables, w.codes[0]));
    _mm512_store_si512(to + stride, look_up<1>(tables, w.codes[1]));
    _mm512_store_si512(to + 2 * stride, look_up<2>(tables, w.codes[2]));
    _mm512_store_si512(to + 3 * stride, look_up<3>(tables, w.codes[3]));
  }

  // Wider codes are multiplied one by one.
  struct Places {
    Lanes vectors[4];
    constexpr Places() : vectors() {
      for (size_t vector = 0; vector < 4; ++vector)
        for (size_t lane = 0; lane < 32; ++lane)
          vectors[vector].group[lane] = static_cast<uint16_t>(group_at(4 * vector + lane / 8));
    }
  };
  static constexpr Places kPlaces{};

  static HWY_INLINE __m512i high_codes(__m512i in_upper_bytes) {
    if constexpr (kShift == 0) return _mm512_srai_epi16(in_upper_bytes, 1);
    return _mm512_slli_epi16(in_upper_bytes, std::max(kShift, 1) - 1);
  }
  static HWY_INLINE void store_by_products(const WeightUnit<Type>& w, const Unit& unit, std::byte* to, size_t stride) {
    const __m512i zero = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v, to += stride) {
      const __m512i codes = _mm512_sub_epi8(w.codes[v], _mm512_set1_epi8(static_cast<char>(kConstant)));
      const __m512i factors = pick(unit.factors, kPlaces.vectors[v]), offsets = pick(unit.offsets, kPlaces.vectors[v]);
      const __m512i low = high_codes(_mm512_unpacklo_epi8(zero, codes));
      const __m512i high = high_codes(_mm512_unpackhi_epi8(zero, codes));
      _mm512_store_si512(to, _mm512_packs_epi16(weights(low, factors, offsets), weights(high, factors, offsets)));
    }
  }

  static void expand(const WeightRows& rows, void* panel, size_t panel_rows) {
    const WeightRows from = rows;
    auto* lines = static_cast<std::byte*>(panel);
    auto* scales = reinterpret_cast<float*>(lines + kUnitValues * panel_rows);
    const std::byte* first = from.first + from.k / kUnitValues * Type::kUnitBytes;
    for (size_t r = 0; r < from.rows; ++r, lines += kInt8Block) {
      const std::byte* bytes = first + r * from.stride;
      for (size_t line = 0; line < Type::kUnitBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(bytes + from.ahead) + line, _MM_HINT_T1);
      WeightUnit<Type> w;
      load_unit<Type>(bytes, from.count, w);
      scales[r] = store(w, lines, panel_rows * kInt8Block);
    }
  }

 private:
  static HWY_INLINE float store(const WeightUnit<Type>& w, std::byte* lines, size_t stride) {
    const Unit rounded = unit(w);
    if constexpr (kNarrow) {
      store_by_tables(w, rounded, lines, stride);
    } else {
      store_by_products(w, rounded, lines, stride);
    }
    return rounded.scale;
  }
};

// The same from a strip, whose rows are a vector's lanes: what differs by row is multiplied as it lies.
template <class Type>
struct RoundedStrip {
  using Form = StripForm<Type>;
  using Rows = Rounded<Type>;
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = Rows::kOffsets;
  static constexpr size_t kFours = kUnitValues / kX.groups / 4;

  static void expand(const WeightRows& rows, void* panel, size_t) {
    const WeightRows from = rows;
    const std::byte* unit = from.first + from.k / kUnitValues * Strip<Type>::kUnitBytes;
    for (size_t line = 0; line < Strip<Type>::kUnitBytes; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(unit + from.ahead) + line, _MM_HINT_T1);
    const Form form(unit);
    const __m512 largest = largest_of(form);
    const __m512 tiny = _mm512_set1_ps(kNothing), steps = _mm512_set1_ps(127);
    const __mmask16 some = static_cast<__mmask16>(~_mm512_cmp_ps_mask(largest, tiny, _CMP_LT_OQ));
    auto* to = static_cast<std::byte*>(panel);
    _mm512_store_ps(to + kStripRows * kUnitValues, _mm512_maskz_div_ps(some, largest, steps));
    store_groups(form, _mm512_maskz_div_ps(some, steps, largest), to, std::make_index_sequence<kX.groups>());
  }

 private:
  static HWY_INLINE __m512 offsets_of(const Form& form, size_t group) {
    if constexpr (kOffsets) {
      const __m512 offsets = form.offsets(group);
      return kX.offsets == Offsets::kSubtracted ? _mm512_sub_ps(_mm512_setzero_ps(), offsets) : offsets;
    }
    return _mm512_setzero_ps();
  }
  static HWY_INLINE __m512 largest_of(const Form& form) {
    __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (size_t g = 0; g < kX.groups; ++g) {
      const __m512 range = _mm512_mul_ps(form.scales(g), _mm512_set1_ps(Rows::kLargest));
      if constexpr (kOffsets) {
        const __m512 offsets = offsets_of(form, g);
        largest = _mm512_max_epu32(
            largest, _mm512_max_epu32(magnitude_bits(offsets), magnitude_bits(_mm512_add_ps(range, offsets))));
      } else {
        largest = _mm512_max_epu32(largest, magnitude_bits(range));
      }
    }
    return _mm512_castsi512_ps(largest);
  }
  // Both halves of each lane.
  static HWY_INLINE __m512i twice(__m512 values) {
    const __m512i low = _mm512_cvtepu16_epi32(_mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(values)));
    return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
  }

  template <size_t... kGroup>
  static HWY_INLINE void store_groups(const Form& form, __m512 inverse, std::byte* to, std::index_sequence<kGroup...>) {
    (store_group<kGroup>(form, inverse, to, std::make_index_sequence<kFours>()), ...);
  }
  template <size_t kGroup, size_t... kFour>
  static HWY_INLINE void store_group(const Form& form, __m512 inverse, std::byte* to, std::index_sequence<kFour...>) {
    const __m512i factors =
        twice(_mm512_mul_ps(form.scales(kGroup), _mm512_mul_ps(inverse, _mm512_set1_ps(Rows::kFactorOne))));
    __m512i offsets = _mm512_setzero_si512();
    if constexpr (kOffsets)
      offsets =
          twice(_mm512_mul_ps(offsets_of(form, kGroup), _mm512_mul_ps(inverse, _mm512_set1_ps(1 << Rows::kFraction))));
    offsets = Rows::sums(offsets, factors);
    (_mm512_store_si512(to + 64 * (4 * kX.place(kGroup, kFour / 4) + kFour % 4),
                        rounded(form.template codes<kGroup, kFour>(), factors, offsets)),
     ...);
  }
  static HWY_INLINE __m512i rounded(__m512i codes, __m512i factors, __m512i offsets) {
    if constexpr (Rows::kNarrow) {
      const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(0xFF)), odd = _mm512_srli_epi16(codes, 8);
      return _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAA,
                                    _mm512_srli_epi16(Rows::fine_weights(even, factors, offsets), 8),
                                    Rows::fine_weights(odd, factors, offsets));
    }
    if constexpr (Rows::kConstant != 0)
      codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(Rows::kConstant)));
    const __m512i even = Rows::high_codes(_mm512_slli_epi16(codes, 8));
    const __m512i odd = Rows::high_codes(_mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0xFF00))));
    const __m512i in_turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    return _mm512_shuffle_epi8(
        _mm512_packs_epi16(Rows::weights(even, factors, offsets), Rows::weights(odd, factors, offsets)), in_turn);
  }
};

struct TileFunctions {
  template <class Type>
  static const Int8TileType& of() {
    static constexpr Int8TileType type{Type::kX, Rounded<Type>::expand, RoundedStrip<Type>::expand};
    return type;
  }
};

// --- activations

// Rounds a unit of which `count` values are there to four lines, `stride` bytes apart.
HWY_INLINE float round_x(const float* x, size_t count, const XLayout& layout, std::byte* lines, size_t stride) {
  __m512 values[kUnitChunks];
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (size_t i = 0; i < kUnitChunks; ++i) {
    const size_t left = count > 16 * i ? count - 16 * i : 0;
    values[i] = left == 0 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(first_floats(left), x + 16 * i);
    largest = _mm512_max_epu32(largest, magnitude_bits(values[i]));
  }
  const float magnitude = largest_magnitude(largest);
  const __m512 inverse = _mm512_set1_ps(inverse_step(magnitude));
#pragma GCC unroll 16
  for (size_t i = 0; i < kUnitChunks; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lines + layout.places[i] / 4 * stride + layout.places[i] % 4 * 16),
                     _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values[i], inverse))));
  return step(magnitude);
}

}  // namespace

void pack_int8_tiles(const XLayout& layout, const float* const* rows, size_t count, size_t width, size_t begin,
                     size_t end, std::byte* to) {
  auto* scales = reinterpret_cast<float*>(to + kUnitValues * width);
  for (size_t r = 0; r < count; ++r)
    scales[r] = round_x(rows[r] + begin, end - begin, layout, to + kInt8Block * r, kInt8Block * width);
  for (size_t r = count; r < width; ++r) scales[r] = 0;
}

const Int8TileType& int8_tile_type(DType dtype) {
  return int8_function<TileFunctions>(dtype);
}

}  // namespace godwit::cpu
GODWIT_BF16_END
