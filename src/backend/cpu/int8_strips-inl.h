// Products of strips (strip_layouts.h) with activations of 8 bits, in vectors of either width: include lines_512-inl.h
// or lines_256-inl.h first. Sums are those of int8_dot.h, to the bit.
#pragma once

#include <utility>

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/strip_layouts.h"

GODWIT_LINES_BEGIN
namespace godwit::cpu {
namespace {

// Levels of four bits, raised so that none is negative.
struct alignas(16) RaisedLevels {
  uint8_t at[16];
  constexpr RaisedLevels(const int8_t (&levels)[16], int raised) : at() {
    for (size_t i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>(levels[i] + raised);
  }
};
constexpr RaisedLevels kIq4Raised(kIq4Levels, IQ4_NLLayout::kX.constant),
    kMxfp4Raised(kMxfp4Levels, MXFP4Layout::kX.constant);
HWY_INLINE Line look_up(const RaisedLevels& levels, Line codes) {
  return bytes_of(levels.at, codes);
}

// Lower four bits and upper two of six, less 32.
HWY_INLINE Floats less_32(Line low, Line high) {
  return sub(to_floats(either(low, lanes_shifted_4(high))), 32);
}

template <int kShift>
HWY_INLINE Line nibbles(Line bytes) {
  return bits(shifted<kShift>(bytes), 15);
}

// A Form is one unit of a strip: codes<group, four>(), four of a group's values in each row, and scales(group) and
// offsets(group) of each row. kInOrder: lines are read about as they lie in memory.
template <class Type>
struct SmallStrip {
  using At = SmallStripLayout<Type>;
  static constexpr bool kInOrder = true;
  explicit HWY_INLINE SmallStrip(const std::byte* from) : unit(from) {}

  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    constexpr size_t kFirst = kGroup * At::kLines;
    if constexpr (!At::kNibbles) return line_at(unit, kFirst + kFour);
    const Line low = nibbles<static_cast<int>(kFour / 4 * 4)>(line_at(unit, kFirst + kFour % 4));
    if constexpr (Type::kFifthBytes > 0)
      return bits_or(shifted<static_cast<int>(kFour) - 4>(line_at(unit, kFirst + At::kCodeLines)), 16, low);
    if constexpr (std::is_same_v<Type, IQ4_NLLayout>) return look_up(kIq4Raised, low);
    if constexpr (std::is_same_v<Type, MXFP4Layout>) return look_up(kMxfp4Raised, low);
    return low;
  }
  HWY_INLINE Floats scales(size_t group) const {
    const std::byte* from = scales_at(group);
    return At::kScaleBytes == 1   ? halved_e8m0_at(from)
           : At::kScaleBytes == 2 ? f16_at(from)
                                  : lower_f16(line_at(from, 0));
  }
  HWY_INLINE Floats offsets(size_t group) const { return upper_f16(line_at(scales_at(group), 0)); }
  const std::byte* unit;

 private:
  HWY_INLINE const std::byte* scales_at(size_t group) const {
    return unit + At::kScalesAt + group * kStripRows * At::kScaleBytes;
  }
};

// Q4_K and Q5_K: d and dmin; twelve bytes of scales and minima; where there are such, fifth bits; codes.
template <size_t kFifthLines>
struct SixBitStrip {
  static constexpr bool kInOrder = true;
  static constexpr size_t kFifthAt = 4, kCodesAt = kFifthAt + kFifthLines;
  explicit HWY_INLINE SixBitStrip(const std::byte* from)
      : unit(from), d(lower_f16(line_at(from, 0))), dmin(upper_f16(line_at(from, 0))) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    const Line low = nibbles<static_cast<int>(kGroup % 2 * 4)>(line_at(unit, kCodesAt + kGroup / 2 * 8 + kFour));
    if constexpr (kFifthLines == 0) return low;
    return bits_or(shifted<static_cast<int>(kGroup) - 4>(line_at(unit, kFifthAt + kFour)), 16, low);
  }
  HWY_INLINE Floats scales(size_t group) const { return mul(d, six_bits(group, 0)); }
  HWY_INLINE Floats offsets(size_t group) const { return mul(dmin, six_bits(group, 1)); }

  const std::byte* unit;
  Floats d, dmin;

 private:
  // The first four are the lower bits of their own bytes; the others' lower bits are halves of the last four bytes, and
  // their upper bits those of the first.
  HWY_INLINE Floats six_bits(size_t group, size_t minima) const {
    const auto shift = static_cast<unsigned>(8 * (group % 4));
    const Line own = line_at(unit, 1 + minima);
    if (group < 4) return to_floats(lane_bits(own, shift, 63));
    const Line low = lane_bits(line_at(unit, 3), shift + 4 * static_cast<unsigned>(minima), 15);
    return to_floats(either(lane_bits(own, shift + 2, 0x30), low));
  }
};

// Q6_K: 128 bytes of lower bits, 64 of upper, sixteen scales; d.
struct Q6_KStrip {
  static constexpr bool kInOrder = false;  // a Zen 4 generates 7 to 14 tokens/s where it has 22 with lines asked for
  explicit HWY_INLINE Q6_KStrip(const std::byte* from)
      : unit(from), d(f16_at(from + 64 * SuperStripLayout<Q6_KLayout>::kLines)) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    constexpr size_t kHalf = kGroup / 8, kValue = kGroup % 8 * 16;
    const Line low = nibbles<static_cast<int>(kValue / 64 * 4)>(line_at(unit, kHalf * 16 + kValue % 64 / 4 + kFour));
    const Line upper = line_at(unit, 32 + kHalf * 8 + kValue % 32 / 4 + kFour);
    constexpr int kAt = kValue / 32 * 2;  // of two bits
    return bits_or(shifted<kAt - 4>(upper), 0x30, low);
  }
  HWY_INLINE Floats scales(size_t group) const {
    return mul(d, to_floats(lane_byte(line_at(unit, 48 + group / 4), group % 4)));
  }
  const std::byte* unit;
  Floats d;
};

// Q2_K: sixteen scales and minima of four bits; 64 bytes of codes; d and dmin. Q3_K: 32 bytes of third bits; 64 of
// lower bits; sixteen scales of six bits; d.
template <size_t kFirst, size_t kGroup, size_t kFour>
HWY_INLINE Line crumbs(const std::byte* unit) {
  constexpr int kAt = static_cast<int>(kGroup % 8 / 2 * 2);  // of two bits
  return bits(shifted<kAt>(line_at(unit, kFirst + kGroup / 8 * 8 + kGroup % 2 * 4 + kFour)), 3);
}

struct Q2_KStrip {
  static constexpr bool kInOrder = false;
  explicit HWY_INLINE Q2_KStrip(const std::byte* from)
      : unit(from), d(lower_f16(line_at(from, 20))), dmin(upper_f16(line_at(from, 20))) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    return crumbs<4, kGroup, kFour>(unit);
  }
  HWY_INLINE Floats scales(size_t group) const { return mul(d, nibble(group, 0)); }
  HWY_INLINE Floats offsets(size_t group) const { return mul(dmin, nibble(group, 4)); }
  const std::byte* unit;
  Floats d, dmin;

 private:
  HWY_INLINE Floats nibble(size_t group, unsigned shift) const {
    return to_floats(lane_bits(line_at(unit, group / 4), static_cast<unsigned>(group % 4 * 8) + shift, 15));
  }
};

struct Q3_KStrip {
  static constexpr bool kInOrder = false;
  explicit HWY_INLINE Q3_KStrip(const std::byte* from)
      : unit(from), d(f16_at(from + 64 * SuperStripLayout<Q3_KLayout>::kLines)) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    constexpr int kBit = static_cast<int>(kGroup / 2);
    return bits_or(shifted<kBit - 2>(line_at(unit, kGroup % 2 * 4 + kFour)), 4, crumbs<8, kGroup, kFour>(unit));
  }
  HWY_INLINE Floats scales(size_t group) const {
    const auto byte = static_cast<unsigned>(group % 4 * 8);
    const Line low = lane_bits(line_at(unit, 24 + group % 8 / 4), byte + static_cast<unsigned>(group / 8 * 4), 15);
    return mul(d, less_32(low, lane_bits(line_at(unit, 26), byte + static_cast<unsigned>(group / 4 * 2), 3)));
  }
  const std::byte* unit;
  Floats d;
};

// IQ4_XS: d and the upper bits of eight scales of six bits; their lower bits; codes.
struct IQ4_XSStrip {
  static constexpr bool kInOrder = true;
  explicit HWY_INLINE IQ4_XSStrip(const std::byte* from) : unit(from), d(lower_f16(line_at(from, 0))) {}
  template <size_t kGroup, size_t kFour>
  HWY_INLINE Line codes() const {
    return look_up(kIq4Raised, nibbles<static_cast<int>(kFour / 4 * 4)>(line_at(unit, 2 + 4 * kGroup + kFour % 4)));
  }
  HWY_INLINE Floats scales(size_t group) const {
    const auto at = static_cast<unsigned>(group);
    return mul(d, less_32(lane_bits(line_at(unit, 1), 4 * at, 15), lane_bits(line_at(unit, 0), 16 + 2 * at, 3)));
  }
  const std::byte* unit;
  Floats d;
};

template <class Layout>
struct FormOf {
  using Form = SmallStrip<Layout>;
};
template <>
struct FormOf<Q2_KLayout> {
  using Form = Q2_KStrip;
};
template <>
struct FormOf<Q3_KLayout> {
  using Form = Q3_KStrip;
};
template <>
struct FormOf<Q4_KLayout> {
  using Form = SixBitStrip<0>;
};
template <>
struct FormOf<Q5_KLayout> {
  using Form = SixBitStrip<8>;
};
template <>
struct FormOf<Q6_KLayout> {
  using Form = Q6_KStrip;
};
template <>
struct FormOf<IQ4_XSLayout> {
  using Form = IQ4_XSStrip;
};
template <class Type>
using StripForm = typename FormOf<typename Type::Layout>::Form;

template <class Type>
struct Strip {
  using Form = StripForm<Type>;
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr size_t kGroups = kX.groups, kFours = kUnitValues / kGroups / 4;
  static constexpr size_t kUnitBytes = kStripRows * Type::kUnitBytes;
  using Sums = WholeSums<typename Type::Layout>;

  // kRows rows of x with the sixteen rows of a strip.
  template <size_t kRows>
  static void dot(const std::byte* strip, const XUnit* x, size_t units, bool fetch, float* sums, size_t sums_stride) {
    Floats totals[kGroups][kRows];
    for (auto& group : totals)
      for (Floats& total : group) total = zero_floats();
    for (size_t u = 0; u < units; ++u, strip += kUnitBytes, ++x)
      add_unit<kRows>(Form(strip), x, units, fetch, totals, std::make_index_sequence<kGroups>());
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      Floats sum = totals[0][r];
#pragma GCC unroll 16
      for (size_t g = 1; g < kGroups; ++g) sum = add(sum, totals[g][r]);
      store(sum, sums + r * sums_stride);
    }
  }

 private:
  template <size_t kRows, size_t... kGroup>
  static HWY_INLINE void add_unit(const Form& unit, const XUnit* x, size_t units, bool fetch,
                                  Floats (&totals)[kGroups][kRows], std::index_sequence<kGroup...>) {
    ((fetch || !Form::kInOrder ? fetch_share<kGroup>(unit.unit) : void(),
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
  static HWY_INLINE void add_group(const Form& unit, const XUnit* x, size_t units, Floats (&totals)[kRows],
                                   std::index_sequence<kFour...>) {
    Form own = unit;
    asm volatile("" : "+r"(own.unit));  // GCC would keep lines that another group needs, too, in memory of its own
    Sums sums[kRows];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) sums[r].start(x[r * units].biases[kGroup]);
    (add_four<kRows>(Sums::prepare(own.template codes<kGroup, kFour>()), x, units,
                     16 * kX.place(kGroup, kFour / 4) + 4 * (kFour % 4), sums),
     ...);
    const Floats scales = own.scales(kGroup);
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      totals[r] = mul_add(to_floats(sums[r].total(x[r * units].biases[kGroup])),
                          mul(scales, x[r * units].scales[kGroup]), totals[r]);
    if constexpr (kOffsets) {
      const Floats offsets = own.offsets(kGroup);
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) totals[r] = mul_add(offsets, x[r * units].offsets[kGroup], totals[r]);
    }
  }
  template <size_t kRows>
  static HWY_INLINE void add_four(const typename Sums::Codes& codes, const XUnit* x, size_t units, size_t at,
                                  Sums (&sums)[kRows]) {
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) sums[r].add_four(codes, x[r * units].codes + at);
  }
};

template <class Type, class Rows = std::make_index_sequence<kStripRowsOfX>>
struct StripDots;
template <class Type, size_t... kFewer>
struct StripDots<Type, std::index_sequence<kFewer...>> {
  static constexpr StripDot kAll[] = {Strip<Type>::template dot<kFewer + 1>...};
};

// A target that has strips alone.
struct StripsAlone {
  template <class Type>
  static const Int8Type& of() {
    static constexpr Int8Type type{Type::kX, StripDots<Type>::kAll, nullptr};
    return type;
  }
};

}  // namespace
}  // namespace godwit::cpu
GODWIT_LINES_END
