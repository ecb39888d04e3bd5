// y^T = W x^T in tiles: 16 weight rows of 32 values are an A as they lie in the panel, 16 rows of x a B. A panel of
// four A tiles shares each B, so that of five tile loads four hit the first cache; a sum is one tile register that
// walks K in order, for one row of x as for many.
#include <utility>

#include "backend/cpu/matmul_amx_int8.h"
#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_sums.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {
namespace {

GODWIT_BF16_BEGIN

// B wants pairs of values of K together: [block][16 pairs][width][2].
void pack_pairs(const float* const* rows, size_t count, size_t width, size_t begin, size_t end, uint16_t* to) {
  const __mmask16 lanes = first_floats(width);
  for (size_t k = begin; k < end; k += kBf16Block) {
    __m512i v[kTile];
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r) v[r] = r < count ? load_bf16(rows[r] + k, end - k) : _mm512_setzero_si512();
    transpose(v);
#pragma GCC unroll 16
    for (size_t pair = 0; pair < kTile; ++pair, to += 2 * width) _mm512_mask_storeu_epi32(to, lanes, v[pair]);
  }
}

GODWIT_BF16_END

template <class Tiles>
class AmxKernel {
 public:
  static constexpr size_t kBlock = kBf16Block, kTailBytes = 0;
  static constexpr size_t kPanelRows = 4 * kTile, kChunk = 256, kStep = 128;  // a step's panel: 16 KiB
  static constexpr size_t kPartRows = 2 * kTile, kPartBytes = kPartRows * kChunk * sizeof(uint16_t);
  static constexpr size_t kTileRows = kTile, kBlockTiles = 32;
  static constexpr size_t kTaskRows = 4 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTile;
  static constexpr size_t kStreamRows = kTile, kStreamBytes = 2 * kPartBytes;
  static constexpr bool kFetchesAhead = true;

  explicit AmxKernel(size_t width) : tiles_(shapes(static_cast<int>(width))) {}

  static size_t tile_width(size_t, size_t all) { return std::min(all, kTile); }
  static size_t blocks(size_t in) { return (in + kBlock - 1) / kBlock; }
  static ExpandRows expander(DType dtype) { return expand_rows_to_bf16(dtype); }
  static bool same_x(DType, DType) { return true; }
  static void pack(DType, const float* const* rows, size_t count, size_t width, size_t k, size_t end, std::byte* to) {
    pack_pairs(rows, count, width, k, end, reinterpret_cast<uint16_t*>(to));
  }

  // Expanding weights and multiplying tiles are the work of different units: while a part of the weights, 32 rows by
  // 256 values, is expanded two rows at a time, the part before it is multiplied, a tile at a time.
  void stream(const WeightStream& s) {
    const size_t blocks = (s.rows(0, 0).count + kBf16Block - 1) / kBf16Block;
    auto* buffers = reinterpret_cast<uint16_t*>(s.scratch);
    const auto* x = reinterpret_cast<const uint16_t*>(s.x);
    Part last{}, next{s.begin, std::min(kPartRows, s.end - s.begin), 0, std::min(kPartBlocks, blocks)};
    for (size_t turn = 0; last.rows + next.rows > 0; ++turn) {
      const uint16_t* panel = buffers + (turn + 1) % 2 * (kPartBytes / sizeof(uint16_t));
      uint16_t* to = buffers + turn % 2 * (kPartBytes / sizeof(uint16_t));
      if (last.rows > 0 && last.block == 0) zero_sums();
      const size_t pairs = std::max<size_t>((next.rows + 1) / 2, 1), pieces = 2 * last.blocks;
      for (size_t pair = 0; pair < pairs; ++pair) {
        if (next.rows > 0) expand_pair(s, next, 2 * pair, to);
        for (size_t piece = pair * pieces / pairs; piece < (pair + 1) * pieces / pairs; ++piece)
          multiply_piece(panel, x + last.block * kBf16Block * s.width, s.width, piece);
      }
      if (last.rows > 0 && last.block + last.blocks == blocks) write_part(s.outputs, last);
      last = next;
      next = following(next, s.end, blocks);
    }
  }

  void multiply(const PanelStep& step) {
    switch ((step.panel_rows + kTile - 1) / kTile) {
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
  void finish() {}

 private:
  static constexpr int kX = 4, kWeights = 5, kSpares = 3;  // tiles 0 to 3 are sums
  static constexpr size_t kStepBlocks = kStep / kBf16Block;

  static TileShapes shapes(int width) {
    const TileShape sums{kTile, 4 * width}, x{kTile, 4 * width}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, weights, weights, weights};
  }

  static constexpr size_t kPartBlocks = kChunk / kBf16Block;
  struct Part {
    size_t row, rows;  // no rows: nothing
    size_t block, blocks;
  };

  // Along the rows, then down.
  static Part following(const Part& part, size_t end, size_t blocks) {
    if (part.rows == 0) return {};
    if (const size_t block = part.block + part.blocks; block < blocks)
      return {part.row, part.rows, block, std::min(kPartBlocks, blocks - block)};
    const size_t row = part.row + part.rows;
    return {row, std::min(kPartRows, end - row), 0, std::min(kPartBlocks, blocks)};
  }

  void expand_pair(const WeightStream& s, const Part& part, size_t row, uint16_t* to) {
    WeightRows weights = s.rows(part.row + row, std::min<size_t>(2, part.rows - row));
    const size_t chunk_bytes = dtype_bytes(s.outputs.problem.dtype, kChunk), in = weights.count;
    weights.k = part.block * kBf16Block;
    weights.count = std::min(kChunk, in - weights.k);
    weights.ahead =
        weights.k + kChunk < in ? chunk_bytes : kPartRows * weights.stride - part.block / kPartBlocks * chunk_bytes;
    s.expand(weights, to + row * kBf16Block, kPartRows);
  }

  void zero_sums() {
    tiles_.template zero<0>();
    tiles_.template zero<1>();
  }

  // The tiles of a part in order: block by block, two of 16 rows each.
  void multiply_piece(const uint16_t* panel, const uint16_t* x, size_t width, size_t piece) {
    const size_t block = piece / 2;
    const uint16_t* weights = panel + block * kPartRows * kBf16Block;
    if (piece % 2 == 0) {
      tiles_.template load<kX>(x + block * kBf16Block * width, 2 * width * sizeof(uint16_t));
      multiply_tile<0>(weights, {nullptr, 0});
    } else {
      multiply_tile<1>(weights, {nullptr, 0});
    }
  }

  void write_part(const TileOutputs& outputs, const Part& part) {
    alignas(64) float out[2 * kTileFloats], sums[kTile * kPartRows];
    tiles_.template store<0>(out, kSumStride);
    tiles_.template store<1>(out + kTileFloats, kSumStride);
    store_transposed(out, 2, outputs.x_rows, kPartRows, sums);
    outputs.write(sums, kPartRows, part.row, part.rows);
  }

  template <int... kI>
  void multiply(const PanelStep& step, std::integer_sequence<int, kI...>) {
    if (step.first) {
      (tiles_.template zero<kI>(), ...);
    } else {
      (tiles_.template load<kI>(step.carry + kI * kTileFloats, kSumStride), ...);
    }
    const auto *panel = reinterpret_cast<const uint16_t*>(step.panel), *x = reinterpret_cast<const uint16_t*>(step.x);
    const size_t x_stride = 2 * step.width;
    const float* next_carry = step.carry + kCarryFloats;
    for (size_t block = 0; block < step.blocks; ++block, next_carry += kCarryFloats / kStepBlocks) {
      tiles_.template load<kX>(x, x_stride * sizeof(uint16_t));
      (multiply_tile<kI>(panel, kI == 0   ? LinesAhead{x + kTile * x_stride, kTileBytes}
                                : kI == 1 ? LinesAhead{next_carry, kCarryFloats / kStepBlocks * sizeof(float)}
                                          : LinesAhead{nullptr, 0}),
       ...);
      panel += kPanelRows * kBf16Block;
      x += kTile * x_stride;
    }
    if (step.last) {
      alignas(64) float out[kCarryFloats];
      (tiles_.template store<kI>(out + kI * kTileFloats, kSumStride), ...);
      store_transposed(out, sizeof...(kI), step.outputs.x_rows, kPanelRows, step.sums);
      step.outputs.write(step.sums, kPanelRows, step.row, step.panel_rows);
    } else {
      (tiles_.template store<kI>(step.carry + kI * kTileFloats, kSumStride), ...);
    }
  }

  // Fetching ahead comes after the load, which the product waits for.
  template <int kI>
  void multiply_tile(const uint16_t* panel, const LinesAhead& ahead) {
    constexpr int kA = kWeights + kI % kSpares;
    tiles_.template load<kA>(panel + kI * kTile * kBf16Block, kBf16Block * sizeof(uint16_t));
    ahead.fetch();
    tiles_.template dot_bf16<kI, kA, kX>();
  }

  Tiles tiles_;
};

}  // namespace

void fill_matmul_amx(Kernels& table) {
  fill_matmul_of<AmxKernel<AmxTiles>, matmul_panels<AmxInt8Kernel<AmxTiles>>>(table);
}

void fill_matmul_amx_emulated(Kernels& table) {
  fill_matmul_of<AmxKernel<EmulatedTiles>, matmul_panels<AmxInt8Kernel<EmulatedTiles>>>(table);
}

}  // namespace godwit::cpu
