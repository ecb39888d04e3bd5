#include <algorithm>

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_strips-inl.h"
#include "backend/cpu/strips.h"
#include "backend/cpu/tile_panel.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

// --- quantized types

// A strip's rows are a vector's lanes, and so they are in the lines of a tile: two values of each row, side by side.
template <class Type>
struct Bf16Strip {
  using Form = typename StripLayout<Type>::Form;
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr size_t kFours = kUnitValues / kX.groups / 4;
  static_assert(kX.offsets != Offsets::kAdded);

  static void expand(const WeightRows& weights, void* panel, size_t) {
    const WeightRows w = weights;
    const std::byte* unit = w.first + w.k / kUnitValues * Strip<Type>::kUnitBytes;
    auto* to = static_cast<std::byte*>(panel);
    for (size_t k = 0; k < w.count; k += kUnitValues, unit += Strip<Type>::kUnitBytes) {
      for (size_t line = 0; line < Strip<Type>::kUnitBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(unit + w.ahead + line), _MM_HINT_T1);
      store_groups(Form(unit), to, std::make_index_sequence<kX.groups>());
      to += kUnitValues / kBf16Block * kTileBytes;
    }
  }

 private:
  struct Scale {
    __m512 factor, offset;
  };

  template <size_t... kGroup>
  static HWY_INLINE void store_groups(const Form& form, std::byte* to, std::index_sequence<kGroup...>) {
    (store_group<kGroup>(form, to, std::make_index_sequence<kFours>()), ...);
  }
  template <size_t kGroup, size_t... kFour>
  static HWY_INLINE void store_group(const Form& form, std::byte* to, std::index_sequence<kFour...>) {
    Scale scale{form.scales(kGroup), _mm512_setzero_ps()};
    if constexpr (kOffsets) scale.offset = form.offsets(kGroup);
    (store_four(form.template codes<kGroup, kFour>(), scale, to + 128 * (kGroup * kFours + kFour)), ...);
  }
  static HWY_INLINE void store_four(__m512i codes, const Scale& scale, std::byte* to) {
    if constexpr (kX.constant != 0) codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(kX.constant)));
    _mm512_store_si512(to, pair(value<0>(codes, scale), value<1>(codes, scale)));
    _mm512_store_si512(to + 64, pair(value<2>(codes, scale), value<3>(codes, scale)));
  }
  template <int kByte>
  static HWY_INLINE __m512 value(__m512i codes, const Scale& scale) {
    const __m512i upper = kByte == 3 ? codes : _mm512_slli_epi32(codes, 24 - 8 * kByte);
    const __m512 level = _mm512_cvtepi32_ps(_mm512_srai_epi32(upper, 24));
    if constexpr (kOffsets) return _mm512_fmsub_ps(level, scale.factor, scale.offset);
    return _mm512_mul_ps(level, scale.factor);
  }
  static HWY_INLINE __m512i pair(__m512 low, __m512 high) {
    alignas(64) static constexpr uint16_t kSideBySide[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                             21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                             11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(kSideBySide), (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
};

struct StripFunctions {
  template <class Type>
  static const ExpandRows& of() {
    static constexpr ExpandRows none = nullptr;
    if constexpr (HasStrips<Type>) {
      static constexpr ExpandRows expand = Bf16Strip<Type>::expand;
      return expand;
    }
    return none;
  }
};

// --- bf16: a strip is its tiles

constexpr size_t kUnitTiles = kUnitValues / kBf16Block;

void pack_bf16(const std::byte* rows, size_t stride, size_t units, std::byte* strip) {
  for (size_t tile = 0; tile < units * kUnitTiles; ++tile, rows += 64, strip += kTileBytes)
    turn_tile(rows, stride, strip, 64);
}
void unpack_bf16(const std::byte* strip, size_t stride, size_t units, std::byte* rows) {
  for (size_t tile = 0; tile < units * kUnitTiles; ++tile, rows += 64, strip += kTileBytes)
    turn_tile(strip, 64, rows, stride);
}

}  // namespace

ExpandRows expand_strips_to_bf16(DType dtype) {
  const ExpandRows expand = int8_function<StripFunctions>(dtype);
  GODWIT_CHECK(expand != nullptr, "{} has no strips", dtype_name(dtype));
  return expand;
}

const Bf16Strips& bf16_strips() {
  static constexpr Bf16Strips strips{pack_bf16, unpack_bf16};
  return strips;
}

}  // namespace godwit::cpu
GODWIT_BF16_END
