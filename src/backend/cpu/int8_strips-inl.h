// Strips: sixteen weight rows laid out anew, so that rows are a vector's lanes and memory is read in whole lines.
//
// A strip is as long as its rows and is [unit of 256 values]: the codes of all its blocks, four bytes of each of the
// sixteen rows to a line, then the blocks' scales, each of sixteen rows. Sums are those of int8_dot.h, to the bit.
#pragma once

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/int8_types-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

// Types whose blocks of 32 are a scale and codes.
template <class Type>
struct Strip {
  static constexpr XLayout kX = Type::kX;
  static constexpr size_t kGroups = 8, kScaleBytes = sizeof(uint16_t);
  static constexpr size_t kBlockBytes = Type::kUnitBytes / kGroups, kCodeBytes = kBlockBytes - kScaleBytes;
  static constexpr bool kNibbles = kCodeBytes == 16;
  static constexpr size_t kLines = kCodeBytes / 4, kUnitLines = kGroups * kLines;
  static constexpr size_t kScalesAt = 64 * kUnitLines, kUnitBytes = kStripRows * Type::kUnitBytes;
  static_assert(kX.groups == kGroups && kX.offsets == Offsets::kNone && kUnitBytes % 64 == 0);
  // Bytes are stored as vpdpbusd takes them: signed ones raised.
  static constexpr uint32_t kRaised = kNibbles ? 0 : 0x80808080;

  static void pack(const std::byte* rows, size_t stride, size_t units, std::byte* strip) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kUnitBytes)
      for (size_t r = 0; r < kStripRows; ++r)
        for (size_t g = 0; g < kGroups; ++g) {
          const std::byte* block = rows + r * stride + g * kBlockBytes;
          for (size_t i = 0; i < kLines; ++i) copy_four(block + kScaleBytes + 4 * i, code_at(strip, r, g, i));
          std::memcpy(scale_at(strip, r, g), block, kScaleBytes);
        }
  }
  static void unpack(const std::byte* strip, size_t stride, size_t units, std::byte* rows) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kUnitBytes)
      for (size_t r = 0; r < kStripRows; ++r)
        for (size_t g = 0; g < kGroups; ++g) {
          std::byte* block = rows + r * stride + g * kBlockBytes;
          for (size_t i = 0; i < kLines; ++i) copy_four(code_at(strip, r, g, i), block + kScaleBytes + 4 * i);
          std::memcpy(block, scale_at(strip, r, g), kScaleBytes);
        }
  }

  // A unit of each row.
  static HWY_INLINE void load(const std::byte* unit, WeightUnit<Type> (&w)[kStripRows]) {
#pragma GCC unroll 4
    for (size_t part = 0; part < kUnitLines / 16; ++part) {
      __m512i v[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) v[i] = _mm512_load_si512(unit + 64 * (16 * part + i));
      transpose(v);
#pragma GCC unroll 16
      for (size_t r = 0; r < kStripRows; ++r) {
        if constexpr (kNibbles) {
          w[r].codes[2 * part] = bits(v[r], 15);
          w[r].codes[2 * part + 1] = bits(_mm512_srli_epi16(v[r], 4), 15);
        } else {
          w[r].codes[part] = v[r];
        }
      }
    }
    __m512i scales[16];
#pragma GCC unroll 16
    for (size_t g = 0; g < 16; ++g)
      scales[g] = g < kGroups ? _mm512_castps_si512(group_scales(unit, g)) : _mm512_setzero_si512();
    transpose(scales);
#pragma GCC unroll 16
    for (size_t r = 0; r < kStripRows; ++r) w[r].scales = _mm512_castps512_ps256(_mm512_castsi512_ps(scales[r]));
  }

  // kRows rows of x with the sixteen rows of a strip.
  template <size_t kRows>
  static void dot(const std::byte* strip, const XUnit* x, size_t units, float* sums, size_t sums_stride) {
    __m512 totals[kGroups][kRows];
    for (auto& group : totals)
      for (__m512& total : group) total = _mm512_setzero_ps();
    for (size_t u = 0; u < units; ++u, strip += kUnitBytes, ++x) {
#pragma GCC unroll 8
      for (size_t g = 0; g < kGroups; ++g) {
        // A line of scales for two groups.
        fetch_ahead(strip + kUnitBytes / kGroups * g, kLines + g % 2);
        add_group<kRows>(strip, x, units, g, totals[g]);
      }
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      __m512 sum = totals[0][r];
#pragma GCC unroll 8
      for (size_t g = 1; g < kGroups; ++g) sum = _mm512_add_ps(sum, totals[g][r]);
      _mm512_storeu_ps(sums + r * sums_stride, sum);
    }
  }

 private:
  template <class Byte>
  static HWY_INLINE Byte* code_at(Byte* unit, size_t row, size_t group, size_t line) {
    return unit + 64 * (group * kLines + line) + 4 * row;
  }
  template <class Byte>
  static HWY_INLINE Byte* scale_at(Byte* unit, size_t row, size_t group) {
    return unit + kScalesAt + (group * kStripRows + row) * kScaleBytes;
  }
  static HWY_INLINE void copy_four(const std::byte* from, std::byte* to) {
    const uint32_t four = static_cast<uint32_t>(load_4(from)) ^ kRaised;
    std::memcpy(to, &four, sizeof four);
  }
  static HWY_INLINE __m512 group_scales(const std::byte* unit, size_t group) {
    const std::byte* from = unit + kScalesAt + group * kStripRows * kScaleBytes;
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static HWY_INLINE void fetch_ahead(const std::byte* from, size_t lines) {
#pragma GCC unroll 9
    for (size_t line = 0; line < lines; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + kFarAhead + 64 * line, _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead + 64 * line, _MM_HINT_T0);
    }
  }

  template <size_t kRows>
  static HWY_INLINE void add_group(const std::byte* unit, const XUnit* x, size_t units, size_t group,
                                   __m512 (&totals)[kRows]) {
    __m512i sums[kRows];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) sums[r] = _mm512_set1_epi32(x[r * units].biases[group]);
    const std::byte* lines = unit + 64 * group * kLines;
#pragma GCC unroll 8
    for (size_t i = 0; i < kLines; ++i) {
      const __m512i line = _mm512_load_si512(lines + 64 * i);
      if constexpr (kNibbles) {
        add_four(bits(line, 15), x, units, 16 * kX.place(group, 0) + 4 * i, sums);
        add_four(bits(_mm512_srli_epi16(line, 4), 15), x, units, 16 * kX.place(group, 1) + 4 * i, sums);
      } else {
        add_four(line, x, units, 16 * kX.place(group, i / 4) + 4 * (i % 4), sums);
      }
    }
    const __m512 scales = group_scales(unit, group);
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]),
                                  _mm512_mul_ps(scales, _mm512_set1_ps(x[r * units].scales[group])), totals[r]);
  }
  template <size_t kRows>
  static HWY_INLINE void add_four(__m512i codes, const XUnit* x, size_t units, size_t at, __m512i (&sums)[kRows]) {
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      sums[r] = _mm512_dpbusd_epi32(sums[r], codes, _mm512_set1_epi32(load_4(x[r * units].codes + at)));
  }
};

template <class Type>
concept HasStrips = requires {
  Type::kStrips;
};

// Where a unit of each of sixteen rows comes from: rows as they lie in a file, or a strip.
template <class Type>
struct UnitsOfRows {
  const std::byte* rows[kStripRows];
  size_t left;  // values
  HWY_INLINE void get(size_t row, WeightUnit<Type>& w) const { load_unit<Type>(rows[row], left, w); }
};
template <class Type>
struct UnitsOfStrip {
  WeightUnit<Type> units[kStripRows];
  explicit HWY_INLINE UnitsOfStrip(const std::byte* unit) { Strip<Type>::load(unit, units); }
  HWY_INLINE void get(size_t row, WeightUnit<Type>& w) const { w = units[row]; }
};

}  // namespace
}  // namespace godwit::cpu
GODWIT_BF16_END
