// y = x W^T in tiles of 8 bits: as in bf16, but with twice the values to a tile and half the bytes to a value. Four
// products of a tile make a unit of 256 values (int8_tiles.h), whose whole sums are scaled and added to the carried
// ones in fp32, unit by unit. Vectors do that for one tile of x while the next one's products are on their way.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "backend/cpu/int8_tiles.h"
#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_panel.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {

GODWIT_BF16_BEGIN

// Whole sums of a tile, times the scales of both, added to those of the units before.
inline void add_scaled(const int32_t* sums, const float* weight_scales, const float* x_scales, size_t width, bool first,
                       float* carry, size_t stride) {
  const __m512 scales = _mm512_load_ps(weight_scales);
  for (size_t row = 0; row < width; ++row, sums += kTile, carry += stride) {
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[row]));
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(carry);
    _mm512_store_ps(carry, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), scale, before));
  }
}

GODWIT_BF16_END

template <class Tiles>
class AmxInt8Kernel {
 public:
  static constexpr bool kInPlace = false;
  static constexpr size_t kBlock = kInt8Block, kTailBytes = sizeof(float);  // a scale
  static constexpr size_t kPanelRows = 4 * kTile, kChunk = kUnitValues;
  static constexpr size_t kTileRows = kTile, kBlockTiles = 32;
  static constexpr size_t kTaskRows = 4 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTile;
  static constexpr size_t kStreamRows = 0;

  explicit AmxInt8Kernel(size_t width) : tiles_(shapes(static_cast<int>(width))) {}

  static size_t tile_width(size_t, size_t all) { return std::min(all, kTile); }
  static size_t blocks(size_t in) { return (in + kUnitValues - 1) / kUnitValues * kInt8UnitBlocks; }
  static TileExpander expander(DType dtype, bool packed) {
    const Int8TileType& type = int8_tile_type(dtype);
    if (packed) return {type.expand_strips, true};
    return {type.expand, false};
  }
  static bool same_x(DType a, DType b) { return &int8_tile_type(a).x == &int8_tile_type(b).x; }
  static void pack(DType dtype, const float* const* rows, size_t count, size_t width, size_t k, size_t end,
                   std::byte* to) {
    pack_int8_tiles(int8_tile_type(dtype).x, rows, count, width, k, end, to);
  }
  static WeightPanel panel(const TileExpander& expand, const WeightRows& weights, std::byte* to) {
    return expand.panel(weights, kInt8UnitBlocks, kStripBytes, to);
  }

  void multiply(const PanelStep& step) {
    switch (tiles_of(step)) {
      case 1:
        return multiply(step, std::make_integer_sequence<int, 1>());
      case 2:
        return multiply(step, std::make_integer_sequence<int, 2>());
      case 3:
        return multiply(step, std::make_integer_sequence<int, 3>());
      default:
        return multiply(step, std::make_integer_sequence<int, 4>());
    }
  }

  // The panel's scales are there until then.
  void finish() {
    for (size_t tile = 0; tile < kTilesOfPanel; ++tile) add_pending(tile);
    end_pending();
  }

 private:
  static constexpr int kX = 4, kWeights = 5, kSpares = 3;  // tiles 0 to 3 are sums
  static constexpr size_t kTilesOfPanel = kPanelRows / kTile, kLine = 64;
  static constexpr size_t kStripBytes = kTile * (kUnitValues + kTailBytes);
  static_assert(kTilesOfPanel == kInt8UnitBlocks);

  static TileShapes shapes(int width) {
    const TileShape sums{width, 64}, x{width, 64}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, weights, weights, weights};
  }
  static size_t tiles_of(const PanelStep& step) { return (step.panel_rows + kTile - 1) / kTile; }

  template <int... kI>
  void multiply(const PanelStep& step, std::integer_sequence<int, kI...>) {
    (tiles_.template zero<kI>(), ...);
    const std::byte *panel = step.panel.bytes, *x = step.x;
    for (size_t block = 0; block < kInt8UnitBlocks; ++block) {
      tiles_.template load_passing<kX>(x, kLine);
      (multiply_tile<kI>(panel), ...);
      add_pending(block);
      panel += kTileBytes;
      x += step.width * kLine;
    }
    end_pending();
    turn_ = 1 - turn_;
    (tiles_.template store<kI>(sums_[turn_].data() + kI * kTileFloats, kLine), ...);
    pending_.emplace(step);
  }

  template <int kI>
  void multiply_tile(const std::byte* panel) {
    constexpr int kB = kWeights + kI % kSpares;
    tiles_.template load<kB>(panel + kI * kStripBytes, kLine);
    tiles_.template dot_int8<kI, kX, kB>();
  }

  void add_pending(size_t tile) {
    if (!pending_.has_value() || tile >= tiles_of(*pending_)) return;
    const PanelStep& step = *pending_;
    const auto* weight_scales =
        reinterpret_cast<const float*>(step.panel.bytes + tile * kStripBytes + kTile * kUnitValues);
    const auto* x_scales = reinterpret_cast<const float*>(step.x + kUnitValues * step.width);
    add_scaled(sums_[turn_].data() + tile * kTileFloats, weight_scales, x_scales, step.width, step.first,
               step.carry + tile * kTile, kPanelRows);
  }
  void end_pending() {
    if (!pending_.has_value()) return;
    const PanelStep& step = *pending_;
    if (step.last) step.outputs.write(step.carry, kPanelRows, step.row, step.panel_rows);
    pending_.reset();
  }

  Tiles tiles_;
  std::optional<PanelStep> pending_;  // its sums are still whole numbers
  size_t turn_ = 0;                   // which of these has them
  alignas(64) std::array<int32_t, kCarryFloats> sums_[2];
};

}  // namespace godwit::cpu
