// Strips: sixteen weight rows laid out anew, so that rows are a vector's lanes and memory is read in whole lines. A
// strip is as long as its rows and is [unit of 256 values].
//
// Sums are those of int8_dot.h, to the bit.
#pragma once

#include <utility>

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/int8_types-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

HWY_INLINE __m512i line_at(const std::byte* unit, size_t line) {
  return _mm512_loadu_si512(unit + 64 * line);
}
// 64 bytes of each row, from sixteen lines beginning at `first`; beyond kCount lines there are zeros.
template <size_t kCount>
HWY_INLINE void load_rows(const std::byte* unit, size_t first, __m512i (&rows)[16]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) rows[i] = first + i < kCount ? line_at(unit, first + i) : _mm512_setzero_si512();
  transpose(rows);
}
template <size_t kShift>
HWY_INLINE __m512i nibbles(__m512i bytes) {
  return bits(kShift == 0 ? bytes : _mm512_srli_epi16(bytes, kShift), 15);
}
HWY_INLINE __m512 f16_of_rows(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// --- blocks of 32 that begin with an f16 scale
//
// A unit: the codes of its eight blocks, four bytes of each row to a line, then the blocks' scales, each of all rows.
// Bytes are stored as vpdpbusd takes them: signed ones raised.
template <class Type>
struct SmallStrip {
  static constexpr XLayout kX = Type::kX;
  static constexpr size_t kGroups = 8, kScaleBytes = sizeof(uint16_t);
  static constexpr size_t kBlockBytes = Type::kUnitBytes / kGroups, kCodeBytes = kBlockBytes - kScaleBytes;
  static constexpr bool kNibbles = kCodeBytes == 16;
  static constexpr size_t kLines = kCodeBytes / 4, kScalesAt = 64 * kGroups * kLines;
  static constexpr uint32_t kRaised = kNibbles ? 0 : 0x80808080;

  // fn(bytes of a row, place in the strip), for all of a unit.
  template <class Row, class Unit, class Copy>
  static void each(Row* row, size_t stride, Unit* unit, Copy copy) {
    for (size_t r = 0; r < kStripRows; ++r, row += stride)
      for (size_t g = 0; g < kGroups; ++g) {
        auto* block = row + g * kBlockBytes;
        for (size_t i = 0; i < kLines; ++i)
          copy(block + kScaleBytes + 4 * i, unit + 64 * (g * kLines + i) + 4 * r, 4, kRaised);
        copy(block, unit + kScalesAt + (g * kStripRows + r) * kScaleBytes, kScaleBytes, 0);
      }
  }

  static HWY_INLINE void load(const std::byte* unit, WeightUnit<Type> (&w)[kStripRows]) {
#pragma GCC unroll 4
    for (size_t part = 0; part < kGroups * kLines / 16; ++part) {
      __m512i v[16];
      load_rows<kGroups * kLines>(unit, 16 * part, v);
#pragma GCC unroll 16
      for (size_t r = 0; r < kStripRows; ++r) {
        if constexpr (kNibbles) {
          w[r].codes[2 * part] = nibbles<0>(v[r]);
          w[r].codes[2 * part + 1] = nibbles<4>(v[r]);
        } else {
          w[r].codes[part] = v[r];
        }
      }
    }
    __m512i scales[16];
#pragma GCC unroll 16
    for (size_t g = 0; g < 16; ++g)
      scales[g] = g < kGroups ? _mm512_castps_si512(SmallStrip(unit).scales(g)) : _mm512_setzero_si512();
    transpose(scales);
#pragma GCC unroll 16
    for (size_t r = 0; r < kStripRows; ++r) w[r].scales = _mm512_castps512_ps256(_mm512_castsi512_ps(scales[r]));
  }

  explicit HWY_INLINE SmallStrip(const std::byte* from) : unit(from) {}
  // Four of a group's values in each row.
  template <size_t kGroup, size_t kFour>
  HWY_INLINE __m512i codes() const {
    if constexpr (kNibbles) return nibbles<kFour / 4 * 4>(line_at(unit, kGroup * kLines + kFour % 4));
    return line_at(unit, kGroup * kLines + kFour);
  }
  HWY_INLINE __m512 scales(size_t group) const {
    return f16_of_rows(unit + kScalesAt + group * kStripRows * kScaleBytes);
  }
  const std::byte* unit;
};

// --- blocks of 256
//
// A unit: four bytes of each row's block to a line, in order, and the last two, where there are such, behind them.
template <class Type>
struct SuperStrip {
  static constexpr size_t kLines = Type::kUnitBytes / 4, kRest = Type::kUnitBytes % 4;

  template <class Row, class Unit, class Copy>
  static void each(Row* row, size_t stride, Unit* unit, Copy copy) {
    for (size_t r = 0; r < kStripRows; ++r, row += stride) {
      for (size_t i = 0; i < kLines; ++i) copy(row + 4 * i, unit + 64 * i + 4 * r, 4, 0);
      if (kRest > 0) copy(row + 4 * kLines, unit + 64 * kLines + kRest * r, kRest, 0);
    }
  }

  // By way of the blocks.
  static HWY_INLINE void load(const std::byte* unit, WeightUnit<Type> (&w)[kStripRows]) {
    constexpr size_t kPitch = (Type::kUnitBytes + 63) / 64 * 64 + 64;
    alignas(64) std::byte rows[kStripRows][kPitch];
    for (size_t part = 0; part < (kLines + 15) / 16; ++part) {
      __m512i v[16];
      load_rows<kLines>(unit, 16 * part, v);
#pragma GCC unroll 16
      for (size_t r = 0; r < kStripRows; ++r) _mm512_store_si512(rows[r] + 64 * part, v[r]);
    }
    for (size_t r = 0; r < kStripRows; ++r) {
      if (kRest > 0) std::memcpy(rows[r] + 4 * kLines, unit + 64 * kLines + kRest * r, kRest);
      Type::load(rows[r], w[r]);
    }
  }
};

// Q4_K and Q5_K: d and dmin; twelve bytes of scales and minima; where there are such, fifth bits; codes.
template <class Type, size_t kFifthLines>
struct SixBitStrip : SuperStrip<Type> {
  static constexpr size_t kFifthAt = 4, kCodesAt = kFifthAt + kFifthLines;
  explicit HWY_INLINE SixBitStrip(const std::byte* from) : unit(from) {
    const __m512i both = line_at(unit, 0);
    d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
  }
  template <size_t kGroup, size_t kFour>
  HWY_INLINE __m512i codes() const {
    const __m512i low = nibbles<kGroup % 2 * 4>(line_at(unit, kCodesAt + kGroup / 2 * 8 + kFour));
    if constexpr (kFifthLines == 0) return low;
    const __m512i fifth = line_at(unit, kFifthAt + kFour);
    return bits_or(kGroup < 4 ? _mm512_slli_epi16(fifth, kGroup < 4 ? 4 - kGroup : 0)
                              : _mm512_srli_epi16(fifth, kGroup < 4 ? 0 : kGroup - 4),
                   16, low);
  }
  HWY_INLINE __m512 scales(size_t group) const { return _mm512_mul_ps(d, six_bits(group, 0)); }
  HWY_INLINE __m512 offsets(size_t group) const { return _mm512_mul_ps(dmin, six_bits(group, 1)); }

  const std::byte* unit;
  __m512 d, dmin;

 private:
  // The first four are the lower bits of their own bytes; the others' lower bits are halves of the last four bytes, and
  // their upper bits those of the first.
  HWY_INLINE __m512 six_bits(size_t group, size_t minima) const {
    const auto shift = static_cast<unsigned>(8 * (group % 4));
    const __m512i own = _mm512_srli_epi32(line_at(unit, 1 + minima), shift);
    if (group < 4) return _mm512_cvtepi32_ps(_mm512_and_si512(own, _mm512_set1_epi32(63)));
    const __m512i low = _mm512_srli_epi32(line_at(unit, 3), static_cast<unsigned>(shift + 4 * minima));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi32(own, 2), _mm512_set1_epi32(0x30));
    return _mm512_cvtepi32_ps(_mm512_or_si512(high, _mm512_and_si512(low, _mm512_set1_epi32(15))));
  }
};

// Q6_K: 128 bytes of lower bits, 64 of upper, sixteen scales; d.
struct Q6_KStrip : SuperStrip<Q6_KCodes> {
  explicit HWY_INLINE Q6_KStrip(const std::byte* from) : unit(from), d(f16_of_rows(from + 64 * kLines)) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE __m512i codes() const {
    constexpr size_t kHalf = kGroup / 8, kValue = kGroup % 8 * 16;
    const __m512i low = nibbles<kValue / 64 * 4>(line_at(unit, kHalf * 16 + kValue % 64 / 4 + kFour));
    const __m512i upper = line_at(unit, 32 + kHalf * 8 + kValue % 32 / 4 + kFour);
    constexpr int kAt = kValue / 32 * 2;  // of two bits
    return bits_or(
        kAt < 4 ? _mm512_slli_epi16(upper, kAt < 4 ? 4 - kAt : 0) : _mm512_srli_epi16(upper, kAt < 4 ? 0 : kAt - 4),
        0x30, low);
  }
  HWY_INLINE __m512 scales(size_t group) const {
    const __m512i upper = _mm512_slli_epi32(line_at(unit, 48 + group / 4), static_cast<unsigned>(24 - group % 4 * 8));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_srai_epi32(upper, 24)));
  }
  const std::byte* unit;
  __m512 d;
};

// --- what a type has

template <class Type>
struct StripLayout {};
template <>
struct StripLayout<Q4_0Codes> {
  using Form = SmallStrip<Q4_0Codes>;
};
template <>
struct StripLayout<Q8_0Codes> {
  using Form = SmallStrip<Q8_0Codes>;
};
template <>
struct StripLayout<Q4_KCodes> {
  using Form = SixBitStrip<Q4_KCodes, 0>;
};
template <>
struct StripLayout<Q5_KCodes> {
  using Form = SixBitStrip<Q5_KCodes, 8>;
};
template <>
struct StripLayout<Q6_KCodes> {
  using Form = Q6_KStrip;
};
template <class Type>
concept HasStrips = requires {
  typename StripLayout<Type>::Form;
};

struct CopyToStrip {
  void operator()(const std::byte* row, std::byte* strip, size_t bytes, uint32_t raised) const {
    uint32_t value = 0;
    std::memcpy(&value, row, bytes);
    value ^= raised;
    std::memcpy(strip, &value, bytes);
  }
};
struct CopyFromStrip {
  void operator()(std::byte* row, const std::byte* strip, size_t bytes, uint32_t raised) const {
    CopyToStrip()(strip, row, bytes, raised);
  }
};

template <class Type>
struct Strip {
  using Form = typename StripLayout<Type>::Form;
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr size_t kGroups = kX.groups, kFours = kUnitValues / kGroups / 4;
  static constexpr size_t kUnitBytes = kStripRows * Type::kUnitBytes;

  static void pack(const std::byte* rows, size_t stride, size_t units, std::byte* strip) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kUnitBytes)
      Form::each(rows, stride, strip, CopyToStrip());
  }
  static void unpack(const std::byte* strip, size_t stride, size_t units, std::byte* rows) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kUnitBytes)
      Form::each(rows, stride, strip, CopyFromStrip());
  }

  // kRows rows of x with the sixteen rows of a strip.
  template <size_t kRows>
  static void dot(const std::byte* strip, const XUnit* x, size_t units, bool fetch, float* sums, size_t sums_stride) {
    __m512 totals[kGroups][kRows];
    for (auto& group : totals)
      for (__m512& total : group) total = _mm512_setzero_ps();
    for (size_t u = 0; u < units; ++u, strip += kUnitBytes, ++x)
      add_unit<kRows>(Form(strip), x, units, fetch, totals, std::make_index_sequence<kGroups>());
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      __m512 sum = totals[0][r];
#pragma GCC unroll 16
      for (size_t g = 1; g < kGroups; ++g) sum = _mm512_add_ps(sum, totals[g][r]);
      _mm512_storeu_ps(sums + r * sums_stride, sum);
    }
  }

 private:
  template <size_t kRows, size_t... kGroup>
  static HWY_INLINE void add_unit(const Form& unit, const XUnit* x, size_t units, bool fetch,
                                  __m512 (&totals)[kGroups][kRows], std::index_sequence<kGroup...>) {
    ((fetch ? fetch_share<kGroup>(unit.unit) : void(),
      add_group<kRows, kGroup>(unit, x, units, totals[kGroup], std::make_index_sequence<kFours>())),
     ...);
  }

  // Each group asks for its share of what lies ahead.
  template <size_t kGroup>
  static HWY_INLINE void fetch_share(const std::byte* unit) {
    constexpr size_t kBegin = kUnitBytes * kGroup / kGroups / 64, kEnd = kUnitBytes * (kGroup + 1) / kGroups / 64;
#pragma GCC unroll 16
    for (size_t line = kBegin; line < kEnd; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(unit) + kFarAhead + 64 * line, _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(unit) + kAhead + 64 * line, _MM_HINT_T0);
    }
  }

  template <size_t kRows, size_t kGroup, size_t... kFour>
  static HWY_INLINE void add_group(const Form& unit, const XUnit* x, size_t units, __m512 (&totals)[kRows],
                                   std::index_sequence<kFour...>) {
    __m512i sums[kRows];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      sums[r] = kX.constant != 0 ? _mm512_set1_epi32(x[r * units].biases[kGroup]) : _mm512_setzero_si512();
    (add_four<kRows>(unit.template codes<kGroup, kFour>(), x, units, 16 * kX.place(kGroup, kFour / 4) + 4 * (kFour % 4),
                     sums),
     ...);
    const __m512 scales = unit.scales(kGroup);
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]),
                                  _mm512_mul_ps(scales, _mm512_set1_ps(x[r * units].scales[kGroup])), totals[r]);
    if constexpr (kOffsets) {
      const __m512 offsets = unit.offsets(kGroup);
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r)
        totals[r] = _mm512_fmadd_ps(offsets, _mm512_set1_ps(x[r * units].offsets[kGroup]), totals[r]);
    }
  }
  template <size_t kRows>
  static HWY_INLINE void add_four(__m512i codes, const XUnit* x, size_t units, size_t at, __m512i (&sums)[kRows]) {
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      sums[r] = _mm512_dpbusd_epi32(sums[r], codes, _mm512_set1_epi32(load_4(x[r * units].codes + at)));
  }
};

// A unit of each of a strip's rows.
template <class Type>
struct UnitsOfStrip {
  WeightUnit<Type> units[kStripRows];
  explicit HWY_INLINE UnitsOfStrip(const std::byte* unit) { StripLayout<Type>::Form::load(unit, units); }
};

}  // namespace
}  // namespace godwit::cpu
GODWIT_BF16_END
