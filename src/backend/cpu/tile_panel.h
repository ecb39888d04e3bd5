// Weights as the tile unit takes them. A tile is a block of 16 weight rows, turned: line i has four bytes of each row,
// two values of bf16 or four of 8 bits. Products are y = x W^T with rows of x as A and weights as B, so that sums lie
// as outputs do, [row of x][weight row].
#pragma once

#include <algorithm>

#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/matmul_panels.h"

namespace godwit::cpu {

inline constexpr size_t kTile = 16;  // rows of a tile, and columns of 32 bits
inline constexpr size_t kTileFloats = kTile * kTile, kTileBytes = 1024;

GODWIT_BF16_BEGIN

// Rows to lines, or back.
inline void turn_tile(const std::byte* from, size_t from_stride, std::byte* to, size_t to_stride) {
  __m512i v[kTile];
#pragma GCC unroll 16
  for (size_t i = 0; i < kTile; ++i) v[i] = _mm512_loadu_si512(from + i * from_stride);
  transpose(v);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTile; ++i) _mm512_storeu_si512(to + i * to_stride, v[i]);
}

GODWIT_BF16_END

// Expands rows to tiles: a strip of 16 rows after the other, each one tile behind the other.
struct TileExpander {
  ExpandRows rows;
  bool turned;  // so they come

  // Of a pair, strips of one matrix and of the other in turn.
  WeightPanel panel(const PanelWeights& weights, size_t tiles, size_t strip_bytes, std::byte* to) const {
    std::byte* next = to;
    WeightRows strip = weights.rows;
    for (size_t row = 0; row < weights.rows.rows; row += kTile) {
      strip.rows = std::min(kTile, weights.rows.rows - row);
      for (const std::byte* first : {weights.rows.first, weights.paired}) {
        if (first == nullptr) continue;
        strip.first = first + row * strip.stride;
        expand(strip, tiles, next);
        next += strip_bytes;
      }
    }
    return {to, to + strip_bytes};
  }

 private:
  void expand(const WeightRows& strip, size_t tiles, std::byte* to) const {
    rows(strip, to, kTile);
    if (turned) return;
    for (std::byte* tile = to; tile < to + tiles * kTileBytes; tile += kTileBytes) turn_tile(tile, 64, tile, 64);
  }
};

}  // namespace godwit::cpu
