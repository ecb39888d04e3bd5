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
  using Form = StripForm<Type>;
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr size_t kFours = kUnitValues / kX.groups / 4;

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
  // Of rows 0 to 7 and 8 to 15, each twice: for two values of a row, side by side.
  struct Twice {
    __m512 lower, upper;
    explicit HWY_INLINE Twice(__m512 of_rows) {
      const __m512i rows = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
      lower = _mm512_permutexvar_ps(rows, of_rows);
      upper = _mm512_permutexvar_ps(_mm512_add_epi32(rows, _mm512_set1_epi32(8)), of_rows);
    }
  };
  struct Scale {
    Twice factor, offset;
  };
  static constexpr float kUpperByte = 1.0F / (1 << 24);  // of whole numbers whose upper byte is a code

  template <size_t... kGroup>
  static HWY_INLINE void store_groups(const Form& form, std::byte* to, std::index_sequence<kGroup...>) {
    (store_group<kGroup>(form, to, std::make_index_sequence<kFours>()), ...);
  }
  template <size_t kGroup, size_t... kFour>
  static HWY_INLINE void store_group(const Form& form, std::byte* to, std::index_sequence<kFour...>) {
    const Scale scale{Twice(_mm512_mul_ps(form.scales(kGroup), _mm512_set1_ps(kUpperByte))),
                      Twice(offsets<kGroup>(form))};
    (store_four(form.template codes<kGroup, kFour>(), scale, to + 128 * (kGroup * kFours + kFour)), ...);
  }
  template <size_t kGroup>  // to be subtracted
  static HWY_INLINE __m512 offsets(const Form& form) {
    if constexpr (kX.offsets == Offsets::kSubtracted) return form.offsets(kGroup);
    if constexpr (kX.offsets == Offsets::kAdded) return _mm512_sub_ps(_mm512_setzero_ps(), form.offsets(kGroup));
    return _mm512_setzero_ps();
  }
  static HWY_INLINE void store_four(__m512i codes, const Scale& scale, std::byte* to) {
    if constexpr (kX.constant != 0) codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(kX.constant)));
    store_pairs<0>(codes, scale, to);
    store_pairs<2>(codes, scale, to + 64);
  }
  // Values kByte and kByte + 1 of each row.
  template <int kByte>
  static HWY_INLINE void store_pairs(__m512i codes, const Scale& scale, std::byte* to) {
    const __m512 low = values(codes, kPlaces.lower[kByte / 2], scale.factor.lower, scale.offset.lower);
    const __m512 high = values(codes, kPlaces.upper[kByte / 2], scale.factor.upper, scale.offset.upper);
    _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  struct alignas(64) Bytes {
    uint8_t at[64];
  };
  struct Places {
    Bytes lower[2], upper[2];
    constexpr Places() : lower(), upper() {
      for (size_t pair = 0; pair < 2; ++pair)
        for (size_t i = 0; i < 64; ++i) {
          lower[pair].at[i] = static_cast<uint8_t>(i / 8 * 4 + 2 * pair + i / 4 % 2);
          upper[pair].at[i] = static_cast<uint8_t>(32 + lower[pair].at[i]);
        }
    }
  };
  static constexpr Places kPlaces{};

  static HWY_INLINE __m512 values(__m512i codes, const Bytes& places, __m512 factor, __m512 offset) {
    const __m512i upper = _mm512_maskz_permutexvar_epi8(0x8888888888888888, _mm512_load_si512(places.at), codes);
    const __m512 level = _mm512_cvtepi32_ps(upper);
    if constexpr (kOffsets) return _mm512_fmsub_ps(level, factor, offset);
    return _mm512_mul_ps(level, factor);
  }
};

struct StripFunctions {
  template <class Type>
  static const ExpandRows& of() {
    static constexpr ExpandRows expand = Bf16Strip<Type>::expand;
    return expand;
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
  return int8_function<StripFunctions>(dtype);
}

const StripCopies& bf16_strips() {
  static constexpr StripCopies strips{pack_bf16, unpack_bf16};
  return strips;
}

}  // namespace godwit::cpu
GODWIT_BF16_END
