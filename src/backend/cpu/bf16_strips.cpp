#include <algorithm>

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_strips-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

template <class Type>
struct StripRow {
  static constexpr XLayout kX = Type::kX;
  static_assert(kX.offsets != Offsets::kAdded);

  // Sixteen values in the order of the row.
  static HWY_INLINE __m512 values(const int8_t* levels, const float* scales, size_t chunk) {
    const __m512 level = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(levels + 16 * kX.places[chunk])));
    const __m512 scale = _mm512_set1_ps(scales[chunk / kX.group_places()]);
    if constexpr (kX.offsets == Offsets::kSubtracted)
      return _mm512_fmsub_ps(level, scale, _mm512_set1_ps(scales[16 + chunk / kX.group_places()]));
    return _mm512_mul_ps(level, scale);
  }

  static HWY_INLINE void expand(const WeightUnit<Type>& w, uint16_t* to, size_t stride) {
    alignas(64) int8_t levels[kUnitValues];
    alignas(64) float scales[32];  // and offsets
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v)
      _mm512_store_si512(levels + 64 * v,
                         _mm512_sub_epi8(w.codes[v], _mm512_set1_epi8(static_cast<char>(kX.constant))));
    std::memcpy(scales, &w.scales, sizeof w.scales);
    if constexpr (kX.offsets != Offsets::kNone) std::memcpy(scales + 16, &w.offsets, sizeof w.offsets);
#pragma GCC unroll 8
    for (size_t i = 0; i < kUnitChunks; i += 2, to += stride)
      _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(values(levels, scales, i + 1), values(levels, scales, i)));
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
      const UnitsOfStrip<Type> from(unit);
      for (size_t r = 0; r < std::min(kStripRows, w.rows - row); ++r)
        StripRow<Type>::expand(from.units[r], to + r * kBf16Block, panel_rows * kBf16Block);
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
