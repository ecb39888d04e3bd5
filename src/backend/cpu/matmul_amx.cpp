// y^T = W x^T in tiles: 16 weight rows of 32 values are an A as they lie in the panel, 16 rows of x a B. Two of each
// make four sums, so that a product costs one tile load, and half of those hit the first cache; a sum is one tile
// register that walks K in order, for one row of x as for many.
#include <utility>

#include "backend/cpu/matmul_amx_int8.h"
#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_sums.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {
namespace {

GODWIT_BF16_BEGIN

// B wants pairs of values of K together: [block][16 pairs][width][2], blocks `stride` bytes apart.
void pack_pairs(const float* const* rows, size_t count, size_t width, size_t begin, size_t end, std::byte* first,
                size_t stride) {
  const __mmask16 lanes = first_floats(width);
  for (size_t k = begin; k < end; k += kBf16Block, first += stride) {
    auto* to = reinterpret_cast<uint16_t*>(first);
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
  static constexpr size_t kPanelRows = 2 * kTile, kChunk = 256, kStep = kChunk;  // a panel: 16 KiB
  static constexpr size_t kPartRows = 2 * kTile, kPartBytes = kPartRows * kChunk * sizeof(uint16_t);
  static constexpr size_t kTileRows = 2 * kTile, kBlockTiles = 16;
  static constexpr size_t kTaskRows = 8 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTileRows;
  static constexpr size_t kStreamRows = kTile, kStreamBytes = 2 * kPartBytes;
  static constexpr bool kFetchesAhead = true;

  explicit AmxKernel(size_t width) : tiles_(shapes(static_cast<int>(std::min(width, kTile)))) {}

  // One B or two, of which all but an only one are whole.
  static size_t tile_width(size_t rows, size_t all) { return rows > kTile ? kTileRows : std::min(all, kTile); }
  static size_t blocks(size_t in) { return (in + kBlock - 1) / kBlock; }
  static ExpandRows expander(DType dtype, bool packed) {
    return packed ? expand_strips_to_bf16(dtype) : expand_rows_to_bf16(dtype);
  }
  static bool same_x(DType, DType) { return true; }
  static void pack(DType, const float* const* rows, size_t count, size_t width, size_t k, size_t end, std::byte* to) {
    for (size_t r = 0; r < count; r += kTile)
      pack_pairs(rows + r, std::min(kTile, count - r), std::min(width, kTile), k, end, to + r * kLine, width * kLine);
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
    if (step.panel_rows > kTile)
      step.width > kTile ? multiply<2, 2>(step) : multiply<2, 1>(step);
    else
      step.width > kTile ? multiply<1, 2>(step) : multiply<1, 1>(step);
  }
  void finish() {}

 private:
  static constexpr int kX = 4, kWeights = 6;  // two each; tiles 0 to 3 are sums, [weights][x]
  static constexpr size_t kLine = 64;
  static TileShapes shapes(int width) {
    const TileShape sums{kTile, 4 * width}, x{kTile, 4 * width}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, x, weights, weights};
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
      tiles_.template load<kWeights>(weights, kLine);
      tiles_.template dot_bf16<0, kWeights, kX>();
    } else {
      tiles_.template load<kWeights + 1>(weights + kTile * kBf16Block, kLine);
      tiles_.template dot_bf16<1, kWeights + 1, kX>();
    }
  }

  void write_part(const TileOutputs& outputs, const Part& part) {
    alignas(64) float out[2 * kTileFloats], sums[kTile * kPartRows];
    tiles_.template store<0>(out, kSumStride);
    tiles_.template store<1>(out + kTileFloats, kSumStride);
    store_transposed(out, 2, outputs.x_rows, kPartRows, sums);
    outputs.write(sums, kPartRows, part.row, part.rows);
  }

  // fn(sum, place): tile registers, and where their values lie, [x][weights].
  template <int kW, int kB, class Fn>
  static void each_sum(Fn&& fn) {
    fn(std::integral_constant<int, 0>(), 0);
    if constexpr (kB > 1) fn(std::integral_constant<int, 1>(), 2);
    if constexpr (kW > 1) fn(std::integral_constant<int, 2>(), 1);
    if constexpr (kW > 1 && kB > 1) fn(std::integral_constant<int, 3>(), 3);
  }

  template <int kW, int kB>
  void multiply(const PanelStep& step) {
    if (step.first) {
      each_sum<kW, kB>([&](auto sum, size_t) { tiles_.template zero<sum()>(); });
    } else {
      each_sum<kW, kB>(
          [&](auto sum, size_t place) { tiles_.template load<sum()>(step.carry + place * kTileFloats, kSumStride); });
    }
    const size_t x_stride = 4 * std::min(step.width, kTile);
    const std::byte *panel = step.panel, *x = step.x;
    const auto* next_carry = reinterpret_cast<const std::byte*>(step.carry + kCarryFloats);
    const size_t carry_bytes = kCarryFloats * sizeof(float) / (kStep / kBlock);
    for (size_t block = 0; block < step.blocks; ++block, next_carry += carry_bytes) {
      const std::byte* next_x = x + step.width * kLine;
      tiles_.template load<kWeights>(panel, kLine);
      tiles_.template load<kX>(x, x_stride);
      LinesAhead{next_x, kTileBytes}.fetch();  // after the loads, which products wait for
      tiles_.template dot_bf16<0, kWeights, kX>();
      if constexpr (kB > 1) {
        tiles_.template load<kX + 1>(x + kTileBytes, x_stride);
        LinesAhead{next_x + kTileBytes, kTileBytes}.fetch();
        tiles_.template dot_bf16<1, kWeights, kX + 1>();
      }
      LinesAhead{next_carry, carry_bytes}.fetch();
      if constexpr (kW > 1) {
        tiles_.template load<kWeights + 1>(panel + kTileBytes, kLine);
        tiles_.template dot_bf16<2, kWeights + 1, kX>();
        if constexpr (kB > 1) tiles_.template dot_bf16<3, kWeights + 1, kX + 1>();
      }
      panel += kPanelRows * kLine;
      x = next_x;
    }
    if (!step.last)
      return each_sum<kW, kB>(
          [&](auto sum, size_t place) { tiles_.template store<sum()>(step.carry + place * kTileFloats, kSumStride); });
    alignas(64) float out[kCarryFloats];
    each_sum<kW, kB>(
        [&](auto sum, size_t place) { tiles_.template store<sum()>(out + place * kTileFloats, kSumStride); });
    for (size_t row = 0; row < step.outputs.x_rows; row += kTile)
      store_transposed(out + row / kTile * 2 * kTileFloats, kW, std::min(kTile, step.outputs.x_rows - row), kPanelRows,
                       step.sums + row * kPanelRows);
    step.outputs.write(step.sums, kPanelRows, step.row, step.panel_rows);
  }

  Tiles tiles_;
};

// Weights of few bits lose little more by being rounded to 8 bits anew.
bool gains_from_8_bits(DType dtype) {
  return is_quantized(dtype) && dtype_bytes(dtype, kUnitValues) * 8 <= 5 * kUnitValues;
}

template <class Tiles>
void matmul_few_bits(Context& context, const MatmulGroup& group) {
  const auto alike = [](const MatmulProblem& a, const MatmulProblem& b) {
    return gains_from_8_bits(a.dtype) == gains_from_8_bits(b.dtype);
  };
  run_together(group, alike, [&](const MatmulGroup& each) {
    gains_from_8_bits(each.products.front().dtype) ? matmul_panels<AmxInt8Kernel<Tiles>>(context, each)
                                                   : matmul_panels<AmxKernel<Tiles>>(context, each);
  });
}

}  // namespace

void fill_matmul_amx_bf16(Kernels& table) {
  fill_matmul_of<AmxKernel<AmxTiles>, matmul_panels<AmxKernel<AmxTiles>>>(table);
}

void fill_matmul_amx_int8(Kernels& table) {
  fill_matmul_of<AmxKernel<AmxTiles>, matmul_few_bits<AmxTiles>>(table);
}

void fill_matmul_amx_emulated(Kernels& table) {
  fill_matmul_of<AmxKernel<EmulatedTiles>, matmul_few_bits<EmulatedTiles>>(table);
}

}  // namespace godwit::cpu
