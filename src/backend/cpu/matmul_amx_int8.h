// y^T = W x^T in tiles of 8 bits: as in bf16, but with twice the values to a tile and half the bytes to a value. Four
// products of a tile make a unit of 256 values (int8_tiles.h), whose whole sums are scaled and added to the carried
// ones in fp32, unit by unit. Vectors do that for one tile of x while the next one's products are on their way.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "backend/cpu/int8_tiles.h"
#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_sums.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {

GODWIT_BF16_BEGIN

// Whole sums of 16 weight rows, times the scales of both, added to those of the units before.
inline void add_scaled(const int32_t* sums, const float* weight_scales, const float* x_scales, size_t width, bool first,
                       float* carry) {
  const __m512 scales = _mm512_maskz_loadu_ps(first_floats(width), x_scales);
#pragma GCC unroll 16
  for (size_t row = 0; row < kTile; ++row, sums += kTile, carry += kTile) {
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(weight_scales[row]));
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(carry);
    _mm512_store_ps(carry, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), scale, before));
  }
}

GODWIT_BF16_END

template <class Tiles>
class AmxInt8Kernel {
 public:
  static constexpr size_t kBlock = kInt8Block, kTailBytes = sizeof(float);  // a scale
  static constexpr size_t kPanelRows = 4 * kTile, kChunk = kUnitValues, kStep = kUnitValues;
  static constexpr size_t kTileRows = kTile, kBlockTiles = 32;
  static constexpr size_t kTaskRows = 4 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTile;
  static constexpr size_t kStreamRows = 0;
  static constexpr bool kFetchesAhead = true;

  explicit AmxInt8Kernel(size_t width) : tiles_(shapes(static_cast<int>(width))) {}

  static size_t tile_width(size_t, size_t all) { return std::min(all, kTile); }
  static size_t blocks(size_t in) { return (in + kUnitValues - 1) / kUnitValues * kInt8UnitBlocks; }
  static ExpandRows expander(DType dtype, bool packed) {
    const Int8TileType& type = int8_tile_type(dtype);
    return packed ? type.expand_strips : type.expand;
  }
  static bool same_x(DType a, DType b) { return &int8_tile_type(a).x == &int8_tile_type(b).x; }
  static void pack(DType dtype, const float* const* rows, size_t count, size_t width, size_t k, size_t end,
                   std::byte* to) {
    pack_int8_tiles(int8_tile_type(dtype).x, rows, count, width, k, end, to);
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
  static constexpr size_t kTilesOfPanel = kPanelRows / kTile;
  static_assert(kTilesOfPanel == kInt8UnitBlocks);

  static TileShapes shapes(int width) {
    const TileShape sums{kTile, 4 * width}, x{kTile, 4 * width}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, weights, weights, weights};
  }
  static size_t tiles_of(const PanelStep& step) { return (step.panel_rows + kTile - 1) / kTile; }

  template <int... kI>
  void multiply(const PanelStep& step, std::integer_sequence<int, kI...>) {
    (tiles_.template zero<kI>(), ...);
    const size_t x_bytes = kTile * 4 * step.width;  // of a block
    const std::byte *panel = step.panel, *x = step.x, *next_x = step.x + kInt8UnitBlocks * x_bytes + kTileBytes / 16;
    for (size_t block = 0; block < kInt8UnitBlocks; ++block) {
      tiles_.template load<kX>(x, 4 * step.width);
      (multiply_tile<kI>(panel, kI == 0 ? LinesAhead{next_x, kTileBytes} : LinesAhead{nullptr, 0}), ...);
      add_pending(block);
      panel += kPanelRows * kInt8Block;
      x += x_bytes;
      next_x += kTileBytes;
    }
    end_pending();
    turn_ = 1 - turn_;
    (tiles_.template store<kI>(sums_[turn_].data() + kI * kTileFloats, kSumStride), ...);
    pending_.emplace(step);
  }

  template <int kI>
  void multiply_tile(const std::byte* panel, const LinesAhead& ahead) {
    constexpr int kA = kWeights + kI % kSpares;
    tiles_.template load<kA>(panel + kI * kTileBytes, kInt8Block);
    ahead.fetch();
    tiles_.template dot_int8<kI, kA, kX>();
  }

  void add_pending(size_t tile) {
    if (!pending_.has_value() || tile >= tiles_of(*pending_)) return;
    const PanelStep& step = *pending_;
    const auto* weight_scales = reinterpret_cast<const float*>(step.panel + kPanelRows * kUnitValues);
    const auto* x_scales = reinterpret_cast<const float*>(step.x + kUnitValues * step.width);
    add_scaled(sums_[turn_].data() + tile * kTileFloats, weight_scales + tile * kTile, x_scales, step.width, step.first,
               step.carry + tile * kTileFloats);
  }
  void end_pending() {
    if (!pending_.has_value()) return;
    const PanelStep& step = *pending_;
    if (step.last) {
      store_transposed(step.carry, tiles_of(step), step.outputs.x_rows, kPanelRows, step.sums);
      step.outputs.write(step.sums, kPanelRows, step.row, step.panel_rows);
    }
    pending_.reset();
  }

  Tiles tiles_;
  std::optional<PanelStep> pending_;  // its sums are still whole numbers
  size_t turn_ = 0;                   // which of these has them
  alignas(64) std::array<int32_t, kCarryFloats> sums_[2];
};

}  // namespace godwit::cpu
