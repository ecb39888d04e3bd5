// y = x W^T in tiles of bf16: 16 rows of x are an A, 16 weight rows of 32 values a B (tile_panel.h). Two of each make
// four sums, so that a product costs one tile load; a sum is one tile register that walks K in order, for one row of x
// as for many.
//
// Weights that lie as tiles in memory are multiplied there. Others are expanded, 32 rows by 512 values at a time, which
// stay in the first cache while all rows of x pass by.
#include <utility>

#include "backend/cpu/matmul_amx_int8.h"
#include "backend/cpu/matmul_amx_stream.h"
#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tile_panel.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {
namespace {

template <class Tiles, bool kTilesInMemory>
class AmxKernel {
 public:
  static constexpr bool kInPlace = kTilesInMemory;
  static constexpr size_t kBlock = kBf16Block, kTailBytes = 0;
  static constexpr size_t kPanelRows = 2 * kTile, kChunk = 512;
  static constexpr size_t kTileRows = 2 * kTile, kBlockTiles = 16;
  static constexpr size_t kTaskRows = 8 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTileRows;
  static constexpr size_t kStreamRows = kInPlace ? 0 : AmxStream<Tiles>::kRowsOfX;

  explicit AmxKernel(size_t width) : tiles_(shapes(static_cast<int>(std::min(width, kTile)))) {}

  // One A or two, of which all but an only one are whole.
  static size_t tile_width(size_t rows, size_t all) { return rows > kTile ? kTileRows : std::min(all, kTile); }
  static size_t blocks(size_t in) { return (in + kBlock - 1) / kBlock; }
  static TileExpander expander(DType dtype, bool packed) {
    if (packed) return {kInPlace ? nullptr : expand_strips_to_bf16(dtype), true};
    return {expand_rows_to_bf16(dtype), false};
  }
  static bool same_x(DType, DType) { return true; }
  static void pack(DType, const float* const* rows, size_t count, size_t width, size_t k, size_t end, std::byte* to) {
    pack_bf16_rows(rows, count, width, k, end, reinterpret_cast<uint16_t*>(to));
  }
  static WeightPanel panel(const TileExpander& expand, const WeightRows& weights, std::byte* to) {
    if constexpr (kInPlace) return {weights.first + weights.k / kBlock * kTileBytes, kTile * weights.stride};
    return expand.panel(weights, blocks(weights.count), kStripBytes, to);
  }

  void multiply(const PanelStep& step) {
    if (step.panel_rows > kTile)
      step.width > kTile ? multiply<2, 2>(step) : multiply<1, 2>(step);
    else
      step.width > kTile ? multiply<2, 1>(step) : multiply<1, 1>(step);
  }
  void finish() {}

  static size_t stream_bytes(size_t in) { return AmxStream<Tiles>::scratch_bytes(in); }
  static void stream(const WeightStream<TileExpander>& s) { AmxStream<Tiles>(s).run(); }

 private:
  static constexpr int kX = 4, kWeights = 6;  // two each; tiles 0 to 3 are sums, [x][weights]
  static constexpr size_t kLine = 64, kSumStride = kPanelRows * sizeof(float);
  static constexpr size_t kStripBytes = kChunk / kBlock * kTileBytes;
  static TileShapes shapes(int width) {
    const TileShape sums{width, 64}, x{width, 64}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, x, weights, weights};
  }

  // fn(sum, place): tile registers, and where their values lie.
  template <int kA, int kB, class Fn>
  static void each_sum(Fn&& fn) {
    fn(std::integral_constant<int, 0>(), 0);
    if constexpr (kB > 1) fn(std::integral_constant<int, 1>(), kTile);
    if constexpr (kA > 1) fn(std::integral_constant<int, 2>(), kTile * kPanelRows);
    if constexpr (kA > 1 && kB > 1) fn(std::integral_constant<int, 3>(), kTile * kPanelRows + kTile);
  }

  template <int kA, int kB>
  void multiply(const PanelStep& step) {
    if (step.first) {
      each_sum<kA, kB>([&](auto sum, size_t) { tiles_.template zero<sum()>(); });
    } else {
      each_sum<kA, kB>([&](auto sum, size_t place) { tiles_.template load<sum()>(step.carry + place, kSumStride); });
    }
    const std::byte *weights = step.panel.bytes, *x = step.x, *next = step.next;
    const size_t stride = step.panel.strip_stride,
                 fetched = kInPlace ? step.next_bytes / step.blocks / kLine * kLine : 0;
    for (size_t block = 0; block < step.blocks; ++block) {
      tiles_.template load<kWeights>(weights, kLine);
      tiles_.template load_passing<kX>(x, kLine);
      tiles_.template dot_bf16<0, kX, kWeights>();
      if constexpr (kB > 1) {
        tiles_.template load<kWeights + 1>(weights + stride, kLine);
        tiles_.template dot_bf16<1, kX, kWeights + 1>();
      }
      if constexpr (kA > 1) {
        tiles_.template load_passing<kX + 1>(x + kTileBytes, kLine);
        tiles_.template dot_bf16<2, kX + 1, kWeights>();
        if constexpr (kB > 1) tiles_.template dot_bf16<3, kX + 1, kWeights + 1>();
      }
      if constexpr (kInPlace) {
        for (size_t line = 0; line < fetched; line += kLine) {
          _mm_prefetch(reinterpret_cast<const char*>(next + line), _MM_HINT_T1);
          if constexpr (kB > 1) _mm_prefetch(reinterpret_cast<const char*>(next + stride + line), _MM_HINT_T1);
        }
        next += fetched;
      }
      weights += kTileBytes;
      x += step.width * kLine;
    }
    float* to = step.last ? step.sums : step.carry;
    each_sum<kA, kB>([&](auto sum, size_t place) { tiles_.template store<sum()>(to + place, kSumStride); });
    if (step.last) step.outputs.write(to, kPanelRows, step.row, step.panel_rows);
  }

  Tiles tiles_;
};

// Strips of bf16 are tiles; of other plain types there are none.
template <class Tiles>
void matmul_plain(Context& context, const MatmulGroup& group) {
  const auto alike = [](const MatmulProblem& a, const MatmulProblem& b) { return a.packed == b.packed; };
  run_together(group, alike, [&](const MatmulGroup& each) {
    each.products.front().packed ? matmul_panels<AmxKernel<Tiles, true>>(context, each)
                                 : matmul_panels<AmxKernel<Tiles, false>>(context, each);
  });
}

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
                                                   : matmul_panels<AmxKernel<Tiles, false>>(context, each);
  });
}

}  // namespace

void fill_matmul_amx_bf16(Kernels& table) {
  fill_matmul_of<matmul_plain<AmxTiles>, matmul_panels<AmxKernel<AmxTiles, false>>>(table);
  table.can_pack = can_pack_tiles;
}

void fill_matmul_amx_int8(Kernels& table) {
  fill_matmul_of<matmul_plain<AmxTiles>, matmul_few_bits<AmxTiles>>(table);
  table.can_pack = can_pack_tiles;
}

void fill_matmul_amx_emulated(Kernels& table) {
  fill_matmul_of<matmul_plain<EmulatedTiles>, matmul_few_bits<EmulatedTiles>>(table);
  table.can_pack = can_pack_tiles;
}

}  // namespace godwit::cpu
