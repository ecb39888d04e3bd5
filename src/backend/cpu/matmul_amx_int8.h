// y = x W^T in tiles of 8 bits: as in bf16, but with twice the values to a tile and half the bytes to a value. Four
// products of a tile make a unit of 256 values (int8_tiles.h), whose whole sums are scaled and added to the carried
// ones in fp32, unit by unit. A step's sums leave the registers amid the first products of the next step, and vectors
// scale them amid those of the one after it.
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
                       float* carry) {
  const __m512 scales = _mm512_load_ps(weight_scales);
  for (size_t row = 0; row < width; ++row, sums += kTile, carry += kTile) {
    const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x_scales[row]));
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(carry);
    _mm512_store_ps(carry, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), scale, before));
  }
}

GODWIT_BF16_END

template <class Tiles>
class AmxInt8Kernel {
 public:
  static constexpr bool kInPlace = false, kPairs = true;
  static constexpr size_t kBlock = kInt8Block, kTailBytes = sizeof(float), kLag = 2;  // a scale
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
  static WeightPanel panel(const TileExpander& expand, const PanelWeights& weights, std::byte* to) {
    return expand.panel(weights, kInt8UnitBlocks, kStripBytes, to);
  }

  void multiply(const PanelStep& step) {
    if (before_.has_value() && strips_of(*before_) != strips_of(step)) finish();
    with_strips(step, [&](auto strips) { multiply(step, strips); });
  }

  void finish() {
    scale_all();
    if (!before_.has_value()) return;
    with_strips(*before_, [&](auto strips) { store(strips); });
    pass_on();
    before_.reset();
    scale_all();
  }

 private:
  static constexpr int kX = 4, kWeights = 5, kSpares = 3;  // tiles 0 to 3 are sums
  static constexpr size_t kStrips = kPanelRows / kTile, kLine = 64;
  static constexpr size_t kStripBytes = kTile * (kUnitValues + kTailBytes);
  static_assert(kStrips == kInt8UnitBlocks);

  static TileShapes shapes(int width) {
    const TileShape sums{width, 64}, x{width, 64}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, weights, weights, weights};
  }
  static size_t strips_of(const PanelStep& step) { return (step.rows() + kTile - 1) / kTile; }
  template <class Fn>
  static void with_strips(const PanelStep& step, Fn&& fn) {
    switch (strips_of(step)) {
      case 1:
        return fn(std::make_integer_sequence<int, 1>());
      case 2:
        return fn(std::make_integer_sequence<int, 2>());
      case 3:
        return fn(std::make_integer_sequence<int, 3>());
      default:
        return fn(std::make_integer_sequence<int, 4>());
    }
  }

  template <int... kI>
  void multiply(const PanelStep& step, std::integer_sequence<int, kI...>) {
    const std::byte *panel = step.panel.bytes, *x = step.x;
    tiles_.template load_passing<kX>(x, kLine);
    (begin_strip<kI>(panel), ...);
    scale(0);
    for (size_t block = 1; block < kInt8UnitBlocks; ++block) {
      panel += kTileBytes;
      x += step.width * kLine;
      tiles_.template load_passing<kX>(x, kLine);
      (multiply_strip<kI>(panel), ...);
      scale(block);
    }
    if (step.last)
      for (size_t row = 0; row < kTile; ++row) step.outputs.fetch(row, step.row, step.panel_rows);
    pass_on();
    before_.emplace(step);
  }

  template <int kI>
  void begin_strip(const std::byte* panel) {
    constexpr int kB = kWeights + kI % kSpares;
    tiles_.template load<kB>(panel + kI * kStripBytes, kLine);
    if (before_.has_value()) store_strip<kI>();
    tiles_.template zero<kI>();
    tiles_.template dot_int8<kI, kX, kB>();
  }
  template <int kI>
  void multiply_strip(const std::byte* panel) {
    constexpr int kB = kWeights + kI % kSpares;
    tiles_.template load<kB>(panel + kI * kStripBytes, kLine);
    tiles_.template dot_int8<kI, kX, kB>();
  }
  template <int kI>
  void store_strip() {
    tiles_.template store<kI>(sums_[turn_].data() + kI * kTileFloats, kLine);
  }
  template <int... kI>
  void store(std::integer_sequence<int, kI...>) {
    (store_strip<kI>(), ...);
  }

  // The sums of the step before are in memory now.
  void pass_on() {
    scaled_.reset();
    if (before_.has_value()) scaled_.emplace(*before_);
    turn_ = 1 - turn_;
  }
  void scale(size_t strip) {
    if (!scaled_.has_value() || strip >= strips_of(*scaled_)) return;
    const PanelStep& step = *scaled_;
    const auto* weight_scales =
        reinterpret_cast<const float*>(step.panel.bytes + strip * kStripBytes + kTile * kUnitValues);
    const auto* x_scales = reinterpret_cast<const float*>(step.x + kUnitValues * step.width);
    float* carry = step.carry + strip * kTileFloats;
    add_scaled(sums_[1 - turn_].data() + strip * kTileFloats, weight_scales, x_scales, step.width, step.first, carry);
    if (!step.last) return;
    if (step.outputs.gate == nullptr) return write(step, carry, strip);
    if (strip % 2 == 1) write(step, carry - kTileFloats, strip / 2);
  }
  static void write(const PanelStep& step, float* tiles, size_t strip) {
    step.outputs.write_tiles(tiles, 0, step.row + strip * kTile, std::min(kTile, step.panel_rows - strip * kTile));
  }
  void scale_all() {
    for (size_t strip = 0; strip < kStrips; ++strip) scale(strip);
    scaled_.reset();
  }

  Tiles tiles_;
  std::optional<PanelStep> before_;  // its sums are in the registers, ...
  std::optional<PanelStep> scaled_;  // ... and this one's in memory, whole numbers still, ...
  size_t turn_ = 0;                  // ... in the other of these
  alignas(64) std::array<int32_t, kCarryFloats> sums_[2];
};

}  // namespace godwit::cpu
