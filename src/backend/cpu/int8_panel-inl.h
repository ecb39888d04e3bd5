// Many rows of x with a panel of 32 weight rows (int8_dot.h).
//
// A panel is [chunk of 8 units][group][unit of the chunk], each a cell: for every four values of the group their codes
// in all 32 rows, then the rows' scales, then their offsets where the type stores some. So a chunk of five rows of x
// stays in the first cache while a group's cells pass by in order. Panels are made of rows or of strips.
#pragma once

#include <algorithm>
#include <utility>

#include "backend/cpu/int8_dot.h"
#include "backend/cpu/int8_strips-inl.h"
#include "backend/cpu/int8_types-inl.h"

GODWIT_AVX512_BEGIN
namespace godwit::cpu {
namespace {

template <class Type>
struct Panel {
  static constexpr XLayout kX = Type::kX;
  static constexpr bool kOffsets = kX.offsets != Offsets::kNone;
  static constexpr size_t kGroups = kX.groups, kPlaces = kX.group_places(), kChunkUnits = 8;
  static constexpr size_t kHalves = 2, kLine = kHalves * 64;  // the 32 rows' codes of four values, or their scales
  static constexpr size_t kScales = kPlaces * 4 * kLine, kOffsetsAt = kScales + kLine;
  static constexpr size_t kCellBytes = kOffsetsAt + (kOffsets ? kLine : 0);
  static constexpr size_t kUnitBytes = kGroups * kCellBytes;

  // Sixteen rows of a unit; `cells` is their half of the first group's cell, `stride` leads to the next group's.
  static void fill_unit(const std::byte* const (&rows)[16], size_t left, std::byte* cells, size_t stride) {
    alignas(64) __m512i codes[4][16];
    __m512i scales[16], offsets[16];
    for (size_t r = 0; r < 16; ++r) {
      WeightUnit<Type> w;
      load_unit<Type>(rows[r], left, w);
#pragma GCC unroll 4
      for (size_t v = 0; v < 4; ++v) codes[v][r] = w.codes[v];
      if constexpr (kGroups == 16) {
        scales[r] = _mm512_castps_si512(w.scales);
        if constexpr (kOffsets) offsets[r] = _mm512_castps_si512(w.offsets);
      } else {
        __m512 both = _mm512_zextps256_ps512(w.scales);
        if constexpr (kOffsets) both = _mm512_insertf32x8(both, w.offsets, 1);
        scales[r] = _mm512_castps_si512(both);
      }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      transpose(codes[v]);
#pragma GCC unroll 16
      for (size_t lane = 0; lane < 16; ++lane) {
        const size_t chunk = kX.order[4 * v + lane / 4], group = chunk / kPlaces, place = chunk % kPlaces;
        _mm512_store_si512(cells + group * stride + (place * 4 + lane % 4) * kLine, codes[v][lane]);
      }
    }
    transpose(scales);
    if constexpr (kOffsets && kGroups == 16) transpose(offsets);
#pragma GCC unroll 16
    for (size_t group = 0; group < kGroups; ++group) {
      _mm512_store_si512(cells + group * stride + kScales, scales[group]);
      if constexpr (kOffsets)
        _mm512_store_si512(cells + group * stride + kOffsetsAt, kGroups == 16 ? offsets[group] : scales[8 + group]);
    }
  }

  // Rows that are not there repeat the last one. While sixteen rows are copied, the sixteen after them are asked for.
  static void fill(const Int8Weights& weights, size_t units, std::byte* panel) {
    const Int8Weights w = weights;
    for (size_t half = 0; half < kHalves; ++half) {
      const std::byte* rows[16];
      for (size_t r = 0; r < 16; ++r) rows[r] = w.first + std::min(16 * half + r, w.rows - 1) * w.stride;
      const std::byte* next = w.first + 16 * (half + 1) * w.stride;
      std::byte* cells = panel + half * 64;
      for (size_t u = 0; u < units; ++u) {
        const size_t chunk = u / kChunkUnits * kChunkUnits, count = std::min(kChunkUnits, units - chunk);
        for (size_t line = 0; line < 16 * Type::kUnitBytes; line += 64)
          _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
        next += 16 * Type::kUnitBytes;
        fill_unit(rows, w.in - u * kUnitValues, cells + chunk * kUnitBytes + (u - chunk) * kCellBytes,
                  count * kCellBytes);
        for (const std::byte*& row : rows) row += Type::kUnitBytes;
      }
    }
  }

  // Of strips; where there is no second, the first is repeated. What the next panel is made of is asked for.
  static void fill_strips(const std::byte* strips, size_t count, size_t units, std::byte* panel) {
    for (size_t half = 0; half < kHalves; ++half) {
      const std::byte* unit = strips + std::min(half, count - 1) * units * kStripUnitBytes;
      for (size_t u = 0; u < units; ++u, unit += kStripUnitBytes) {
        const size_t chunk = u / kChunkUnits * kChunkUnits, in_chunk = std::min(kChunkUnits, units - chunk);
        const std::byte* next = unit + kHalves * units * kStripUnitBytes;
        for (size_t line = 0; line < kStripUnitBytes; line += 64)
          _mm_prefetch(reinterpret_cast<const char*>(next) + line, _MM_HINT_T1);
        copy_unit(StripForm<Type>(unit), panel + half * 64 + chunk * kUnitBytes + (u - chunk) * kCellBytes,
                  in_chunk * kCellBytes, std::make_index_sequence<kGroups>());
      }
    }
  }

  template <size_t kRows>
  static void dot(const std::byte* panel, const XUnit* x, size_t units, float* sums, size_t sums_stride) {
    alignas(64) float carry[kGroups][kRows][kHalves][16];
    for (size_t first = 0; first < units; first += kChunkUnits) {
      const size_t count = std::min(kChunkUnits, units - first);
      for (size_t group = 0; group < kGroups; ++group, panel += count * kCellBytes)
        add_group<kRows>(panel, x + first, units, count, group, first == 0, carry[group]);
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
      for (size_t half = 0; half < kHalves; ++half) {
        __m512 sum = _mm512_load_ps(carry[0][r][half]);
        for (size_t group = 1; group < kGroups; ++group)
          sum = _mm512_add_ps(sum, _mm512_load_ps(carry[group][r][half]));
        _mm512_storeu_ps(sums + r * sums_stride + 16 * half, sum);
      }
  }

 private:
  static constexpr size_t kStripUnitBytes = kStripRows * Type::kUnitBytes;
  // From a group's first values of x to those that stand at its second place.
  static constexpr size_t kBetweenPlaces = 16 * (kX.place(0, kPlaces - 1) - kX.place(0, 0));
  static constexpr bool places_are_alike() {
    for (size_t group = 0; group < kGroups; ++group)
      if (16 * (kX.place(group, kPlaces - 1) - kX.place(group, 0)) != kBetweenPlaces) return false;
    return true;
  }
  static_assert(kPlaces <= 2 && places_are_alike());

  template <size_t... kGroup>
  static HWY_INLINE void copy_unit(const StripForm<Type>& unit, std::byte* cells, size_t stride,
                                   std::index_sequence<kGroup...>) {
    (copy_group<kGroup>(unit, cells + kGroup * stride, std::make_index_sequence<kPlaces * 4>()), ...);
  }
  template <size_t kGroup, size_t... kFour>
  static HWY_INLINE void copy_group(const StripForm<Type>& unit, std::byte* cell, std::index_sequence<kFour...>) {
    (_mm512_store_si512(cell + kFour * kLine, unit.template codes<kGroup, kFour>()), ...);
    _mm512_store_ps(cell + kScales, unit.scales(kGroup));
    if constexpr (kOffsets) _mm512_store_ps(cell + kOffsetsAt, unit.offsets(kGroup));
  }

  // What XUnit has of a group, from a pointer to its unit and four bytes for every group before.
  static HWY_INLINE __m512i codes_of(const std::byte* x) {
    return _mm512_set1_epi32(load_4(x));
  }
  template <size_t kMember>
  static HWY_INLINE __m512 floats_of(const std::byte* x) {
    return _mm512_castsi512_ps(codes_of(x + kMember));
  }

  template <size_t kRows>
  static HWY_INLINE void add_group(const std::byte* cell, const XUnit* x, size_t units, size_t count, size_t group,
                                   bool fresh, float (&carry)[kRows][kHalves][16]) {
    __m512 totals[kRows][kHalves];
    const std::byte* rows[kRows];
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r) {
      rows[r] = reinterpret_cast<const std::byte*>(x + r * units) + 4 * group;
#pragma GCC unroll 2
      for (size_t half = 0; half < kHalves; ++half)
        totals[r][half] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(carry[r][half]);
    }
    auto place = static_cast<ptrdiff_t>(16 * kX.place(group, 0)) - static_cast<ptrdiff_t>(4 * group);
    for (size_t u = 0; u < count; ++u, cell += kCellBytes) {
      // GCC would keep an address for each of the group's fours, in memory or, worse, in vectors.
      asm("" : "+r"(place));
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) asm("" : "+r"(rows[r]));
      __m512i sums[kRows][kHalves];
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = codes_of(rows[r] + offsetof(XUnit, biases));
      const std::byte* codes = cell;
#pragma GCC unroll 2
      for (size_t i = 0; i < kPlaces; ++i) {
#pragma GCC unroll 4
        for (size_t four = 0; four < 4; ++four, codes += kLine) {
          const __m512i low = _mm512_load_si512(codes), high = _mm512_load_si512(codes + 64);
#pragma GCC unroll 6
          for (size_t r = 0; r < kRows; ++r) {
            const __m512i values = codes_of(rows[r] + place + kBetweenPlaces * i + 4 * four);
            sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], low, values);
            sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], high, values);
          }
        }
      }
#pragma GCC unroll 2
      for (size_t half = 0; half < kHalves; ++half) {
        const __m512 scales = _mm512_load_ps(reinterpret_cast<const float*>(cell + kScales + 64 * half));
#pragma GCC unroll 6
        for (size_t r = 0; r < kRows; ++r) {
          const __m512 scale = _mm512_mul_ps(scales, floats_of<offsetof(XUnit, scales)>(rows[r]));
          totals[r][half] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][half]), scale, totals[r][half]);
        }
        if constexpr (kOffsets) {
          const __m512 offsets = _mm512_load_ps(reinterpret_cast<const float*>(cell + kOffsetsAt + 64 * half));
#pragma GCC unroll 6
          for (size_t r = 0; r < kRows; ++r)
            totals[r][half] = _mm512_fmadd_ps(offsets, floats_of<offsetof(XUnit, offsets)>(rows[r]), totals[r][half]);
        }
      }
#pragma GCC unroll 6
      for (size_t r = 0; r < kRows; ++r) rows[r] += sizeof(XUnit);
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (size_t half = 0; half < kHalves; ++half) _mm512_store_ps(carry[r][half], totals[r][half]);
  }
};

}  // namespace
}  // namespace godwit::cpu
GODWIT_AVX512_END
