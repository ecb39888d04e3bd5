// Few rows of x with weights of 16 bits as they lie in a file, where reading them is what takes time: y^T = W x^T, with
// 16 weight rows as an A and rows of x as a B. The sums are those of AmxKernel (matmul_amx.cpp), to the bit: a tile
// register walks K in order.
//
// Expanding weights and multiplying tiles are the work of different units: while a part of the weights, 32 rows by 256
// values, is expanded two rows at a time, the part before it is multiplied, a tile at a time.
#pragma once

#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_panel.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {

GODWIT_BF16_BEGIN

// A block of `width` rows of x as a B of that width.
inline void turn_x(const std::byte* x, size_t width, std::byte* to) {
  __m512i v[kTile];
#pragma GCC unroll 16
  for (size_t r = 0; r < kTile; ++r) v[r] = r < width ? _mm512_load_si512(x + 64 * r) : _mm512_setzero_si512();
  transpose(v);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTile; ++i, to += 4 * width) _mm512_mask_storeu_epi32(to, first_floats(width), v[i]);
}

GODWIT_BF16_END

template <class Tiles>
class AmxStream {
 public:
  static constexpr size_t kRowsOfX = kTile;
  static size_t scratch_bytes(size_t in) { return 2 * kPartBytes + (in + kBf16Block - 1) / kBf16Block * kTileBytes; }

  explicit AmxStream(const WeightStream<TileExpander>& stream)
      : s_(stream),
        blocks_((stream.rows(0, 0).count + kBf16Block - 1) / kBf16Block),
        buffers_(stream.scratch),
        x_(stream.scratch + 2 * kPartBytes),
        tiles_(shapes(static_cast<int>(stream.width))) {}

  void run() {
    for (size_t block = 0; block < blocks_; ++block)
      turn_x(s_.x + block * s_.width * kLine, s_.width, x_ + block * s_.width * kLine);
    Part last{}, next{s_.begin, std::min(kPartRows, s_.end - s_.begin), 0, std::min(kPartBlocks, blocks_)};
    for (size_t turn = 0; last.rows + next.rows > 0; ++turn) {
      const std::byte* panel = buffers_ + (turn + 1) % 2 * kPartBytes;
      std::byte* to = buffers_ + turn % 2 * kPartBytes;
      if (last.rows > 0 && last.block == 0) zero_sums();
      const size_t pairs = std::max<size_t>((next.rows + 1) / 2, 1), pieces = 2 * last.blocks;
      for (size_t pair = 0; pair < pairs; ++pair) {
        if (next.rows > 0) expand_pair(next, 2 * pair, to);
        for (size_t piece = pair * pieces / pairs; piece < (pair + 1) * pieces / pairs; ++piece)
          multiply_piece(panel, x_ + last.block * s_.width * kLine, piece);
      }
      if (last.rows > 0 && last.block + last.blocks == blocks_) write_part(last);
      last = next;
      next = following(next);
    }
  }

 private:
  static constexpr int kX = 4, kWeights = 6;  // and two of these; tiles 0 and 1 are sums
  static constexpr size_t kLine = 64, kPartRows = 2 * kTile, kPartValues = 256;
  static constexpr size_t kPartBlocks = kPartValues / kBf16Block,
                          kPartBytes = kPartRows * kPartValues * sizeof(uint16_t);
  struct Part {
    size_t row, rows;  // no rows: nothing
    size_t block, blocks;
  };
  static TileShapes shapes(int width) {
    const TileShape sums{kTile, 4 * width}, x{kTile, 4 * width}, weights{kTile, 64}, none{};
    return {sums, sums, none, none, x, none, weights, weights};
  }

  // Along the rows, then down.
  Part following(const Part& part) const {
    if (part.rows == 0) return {};
    if (const size_t block = part.block + part.blocks; block < blocks_)
      return {part.row, part.rows, block, std::min(kPartBlocks, blocks_ - block)};
    const size_t row = part.row + part.rows;
    return {row, std::min(kPartRows, s_.end - row), 0, std::min(kPartBlocks, blocks_)};
  }

  void expand_pair(const Part& part, size_t row, std::byte* to) const {
    WeightRows weights = s_.rows(part.row + row, std::min<size_t>(2, part.rows - row));
    const size_t part_bytes = dtype_bytes(s_.outputs.problem.dtype, kPartValues), in = weights.count;
    weights.k = part.block * kBf16Block;
    weights.count = std::min(kPartValues, in - weights.k);
    weights.ahead = static_cast<ptrdiff_t>(
        weights.k + kPartValues < in ? part_bytes : kPartRows * weights.stride - part.block / kPartBlocks * part_bytes);
    s_.expand.rows(weights, to + row * kLine, kPartRows);
  }

  void zero_sums() {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
  }

  // The tiles of a part in order: block by block, two of 16 rows each.
  void multiply_piece(const std::byte* panel, const std::byte* x, size_t piece) {
    const size_t block = piece / 2;
    const std::byte* weights = panel + block * kPartRows * kLine;
    if (piece % 2 == 0) {
      tiles_.template load<kX>(x + block * s_.width * kLine, 4 * s_.width);
      tiles_.template load<kWeights>(weights, kLine);
      tiles_.template dot_bf16<0, kWeights, kX>();
    } else {
      tiles_.template load<kWeights + 1>(weights + kTileBytes, kLine);
      tiles_.template dot_bf16<1, kWeights + 1, kX>();
    }
  }

  void write_part(const Part& part) const {
    alignas(64) std::byte out[kTileBytes], sums[kTile * kPartRows * sizeof(float)];
    tiles_.template store<0>(out, kLine);
    turn_tile(out, kLine, sums, kPartRows * sizeof(float));
    tiles_.template store<1>(out, kLine);
    turn_tile(out, kLine, sums + kLine, kPartRows * sizeof(float));
    s_.outputs.write(reinterpret_cast<float*>(sums), kPartRows, part.row, part.rows);
  }

  const WeightStream<TileExpander>& s_;
  const size_t blocks_;
  std::byte *buffers_, *x_;
  Tiles tiles_;
};

}  // namespace godwit::cpu
