#include <algorithm>

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_strips-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

// A unit of a strip's rows: whole numbers, in the order of the type's codes, and what they are multiplied with.
template <class Type>
struct UnitLevels {
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static_assert(kX.offsets != Offsets::kAdded);
  using Form = typename StripLayout<Type>::Form;

  alignas(64) int8_t levels[kStripRows][kUnitValues];
  alignas(64) float scales[kX.groups][kStripRows], offsets[kOffsets ? kX.groups : 1][kStripRows];

  explicit HWY_INLINE UnitLevels(const std::byte* unit) {
    if constexpr (requires { Form::kScalesAt; }) {
      load_small(unit);
    } else {
      load_super(unit);
    }
  }

  // Sixteen values in the order of the row.
  HWY_INLINE __m512 values(size_t row, size_t chunk) const {
    const __m512 level = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(levels[row] + 16 * kX.places[chunk])));
    const size_t group = chunk / kX.group_places();
    const __m512 scale = _mm512_set1_ps(scales[group][row]);
    if constexpr (kOffsets) return _mm512_fmsub_ps(level, scale, _mm512_set1_ps(offsets[group][row]));
    return _mm512_mul_ps(level, scale);
  }

 private:
  static HWY_INLINE __m512i level_of(__m512i codes) {
    return _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(kX.constant)));
  }

  HWY_INLINE void load_small(const std::byte* unit) {
#pragma GCC unroll 4
    for (size_t part = 0; part < Form::kGroups * Form::kLines / 16; ++part) {
      __m512i v[16];
      load_rows<Form::kGroups * Form::kLines>(unit, 16 * part, v);
#pragma GCC unroll 16
      for (size_t r = 0; r < kStripRows; ++r) {
        if constexpr (Form::kNibbles) {
          _mm512_store_si512(levels[r] + 128 * part, level_of(nibbles<0>(v[r])));
          _mm512_store_si512(levels[r] + 128 * part + 64, level_of(nibbles<4>(v[r])));
        } else {
          _mm512_store_si512(levels[r] + 64 * part, level_of(v[r]));
        }
      }
    }
#pragma GCC unroll 8
    for (size_t g = 0; g < Form::kGroups; ++g) _mm512_store_ps(scales[g], Form(unit).scales(g));
  }

  HWY_INLINE void load_super(const std::byte* unit) {
    const UnitsOfStrip<Type> from(unit);
    const Form form(unit);
    for (size_t r = 0; r < kStripRows; ++r) {
#pragma GCC unroll 4
      for (size_t v = 0; v < 4; ++v) _mm512_store_si512(levels[r] + 64 * v, level_of(from.units[r].codes[v]));
    }
#pragma GCC unroll 16
    for (size_t g = 0; g < kX.groups; ++g) {
      _mm512_store_ps(scales[g], form.scales(g));
      if constexpr (kOffsets) _mm512_store_ps(offsets[g], form.offsets(g));
    }
  }
};

template <class Type>
void expand_strips(const WeightRows& weights, void* panel, size_t panel_rows) {
  const WeightRows w = weights;
  for (size_t row = 0; row < w.rows; row += kStripRows) {
    const std::byte* unit = w.first + row * w.stride + w.k / kUnitValues * Strip<Type>::kUnitBytes;
    auto* to = static_cast<uint16_t*>(panel) + row * kBf16Block;
    for (size_t k = 0; k < w.count; k += kUnitValues, unit += Strip<Type>::kUnitBytes) {
      for (size_t line = 0; line < Strip<Type>::kUnitBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(unit) + w.ahead + line, _MM_HINT_T1);
      const UnitLevels<Type> from(unit);
      for (size_t r = 0; r < std::min(kStripRows, w.rows - row); ++r) {
#pragma GCC unroll 8
        for (size_t i = 0; i < kUnitChunks / 2; ++i)
          _mm512_store_si512(to + (i * panel_rows + r) * kBf16Block,
                             (__m512i)_mm512_cvtne2ps_pbh(from.values(r, 2 * i + 1), from.values(r, 2 * i)));
      }
      to += kUnitValues / kBf16Block * panel_rows * kBf16Block;
    }
  }
}

struct StripFunctions {
  template <class Type>
  static const ExpandRows& of() {
    static constexpr ExpandRows none = nullptr;
    if constexpr (HasStrips<Type>) {
      static constexpr ExpandRows expand = expand_strips<Type>;
      return expand;
    }
    return none;
  }
};

}  // namespace

ExpandRows expand_strips_to_bf16(DType dtype) {
  const ExpandRows expand = int8_function<StripFunctions>(dtype);
  GODWIT_CHECK(expand != nullptr, "{} has no strips", dtype_name(dtype));
  return expand;
}

}  // namespace godwit::cpu
GODWIT_BF16_END
