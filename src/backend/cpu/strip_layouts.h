// Strips: sixteen weight rows laid out anew, so that rows are a vector's lanes and memory is read in whole lines. A
// strip is as long as its rows and is [unit of 256 values]. Where each byte goes: plain code, the same on all targets.
#pragma once

#include <type_traits>

#include "backend/cpu/int8_layouts.h"

namespace godwit::cpu {

inline constexpr size_t kStripRows = 16;

// What becomes of four bytes that go into a strip.
enum class Change : uint8_t {
  kNone,
  kRaised,  // signed codes become unsigned ones
  kTurned,  // bit 4 f + i, that of value i of the f-th four, becomes bit f of byte i
};

// Blocks of 32. A unit: of each of its eight blocks the codes, four bytes of each row to a line, and then the fifth
// bits, where there are such; then the blocks' scales, each of all rows.
template <class Type>
struct SmallStripLayout {
  static constexpr size_t kGroups = 8, kBlockBytes = Type::kUnitBytes / kGroups, kScaleBytes = Type::kScaleBytes;
  static constexpr size_t kCodeLines = Type::kCodeBytes / 4, kLines = kCodeLines + Type::kFifthBytes / 4;
  static constexpr size_t kScalesAt = 64 * kGroups * kLines;
  static constexpr bool kNibbles = Type::kCodeBytes == 16;

  // copy(bytes of a row, place in the strip, how many, change), for all of a unit.
  template <class Row, class Unit, class Copy>
  static void each(Row* row, size_t stride, Unit* unit, Copy copy) {
    for (size_t r = 0; r < kStripRows; ++r, row += stride)
      for (size_t g = 0; g < kGroups; ++g) {
        auto* block = row + g * kBlockBytes;
        auto* lines = unit + 64 * g * kLines + 4 * r;
        auto* codes = block + kScaleBytes + Type::kFifthBytes;
        for (size_t i = 0; i < kCodeLines; ++i)
          copy(codes + 4 * i, lines + 64 * i, 4, kNibbles ? Change::kNone : Change::kRaised);
        if (Type::kFifthBytes > 0) copy(block + kScaleBytes, lines + 64 * kCodeLines, 4, Change::kTurned);
        copy(block, unit + kScalesAt + (g * kStripRows + r) * kScaleBytes, kScaleBytes, Change::kNone);
      }
  }
};

// Blocks of 256. A unit: four bytes of each row's block to a line, in order, and the last two, where there are such,
// behind them.
template <class Type>
struct SuperStripLayout {
  static constexpr size_t kLines = Type::kUnitBytes / 4, kRest = Type::kUnitBytes % 4;

  template <class Row, class Unit, class Copy>
  static void each(Row* row, size_t stride, Unit* unit, Copy copy) {
    for (size_t r = 0; r < kStripRows; ++r, row += stride) {
      for (size_t i = 0; i < kLines; ++i) copy(row + 4 * i, unit + 64 * i + 4 * r, 4, Change::kNone);
      if (kRest > 0) copy(row + 4 * kLines, unit + 64 * kLines + kRest * r, kRest, Change::kNone);
    }
  }
};

template <class Type>
concept OfSmallBlocks = requires {
  Type::kSmallBlocks;
};
template <class Type>
using StripLayout = std::conditional_t<OfSmallBlocks<Type>, SmallStripLayout<Type>, SuperStripLayout<Type>>;

}  // namespace godwit::cpu
