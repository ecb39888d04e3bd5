// y = x W^T in tiles of bf16: 16 rows of x are an A, 16 weight rows of 32 values a B (tile_panel.h). Two of each make
// four sums, so that a product costs one tile load; a sum is one tile register that walks K in order, for one row of x
// as for many.
//
// Storing a tile takes as long as a product, and so does the wait for its last one: a step's sums leave the registers
// amid the first products of the next step, and are written to the outputs behind its last.
//
// Weights that lie as tiles in memory are multiplied there. Others are expanded, 32 rows by 512 values at a time, which
// stay in the first cache while all rows of x pass by.
#include <optional>
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
  static constexpr bool kInPlace = kTilesInMemory, kPairs = true;
  static constexpr size_t kBlock = kBf16Block, kTailBytes = 0, kLag = 0;
  static constexpr size_t kPanelRows = 2 * kTile, kChunk = 512;
  static constexpr size_t kTileRows = 2 * kTile, kBlockTiles = kInPlace ? 8 : 16;
  static constexpr size_t kTaskRows = 16 * kPanelRows, kRowStep = kTile;
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
  static WeightPanel panel(const TileExpander& expand, const PanelWeights& weights, std::byte* to) {
    return expand.panel(weights, blocks(weights.rows.count), kStripBytes, to);
  }

  void multiply(const PanelStep& step) {
    if (step.rows() > kTile)
      step.width > kTile ? multiply<2, 2>(step) : multiply<1, 2>(step);
    else
      step.width > kTile ? multiply<2, 1>(step) : multiply<1, 1>(step);
  }
  void finish() {
    if (!before_.has_value()) return;
    before_->tiles_of_x > 1 ? (before_->strips > 1 ? store<2, 2>() : store<2, 1>())
                            : (before_->strips > 1 ? store<1, 2>() : store<1, 1>());
    write();
    before_.reset();
  }

  static size_t stream_bytes(size_t in) { return AmxStream<Tiles>::scratch_bytes(in); }
  static void stream(const WeightStream<TileExpander>& s) { AmxStream<Tiles>(s).run(); }

 private:
  static constexpr int kX = 4, kWeights = 6;  // two each; tiles 0 to 3 are sums, [x][weights]
  static constexpr size_t kLine = 64;
  static constexpr size_t kStripBytes = kChunk / kBlock * kTileBytes;
  static TileShapes shapes(int width) {
    const TileShape sums{width, 64}, x{width, 64}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, x, weights, weights};
  }

  // What of a step is still in the registers, and then on its way to the outputs.
  struct Before {
    int tiles_of_x, strips;
    float* to;  // four tiles
    bool last;
    size_t row, rows;  // outputs
    TileOutputs outputs;
  };

  template <int kA, int kB>
  void store() {
    store_sum<0>();
    if constexpr (kB > 1) store_sum<1>();
    if constexpr (kA > 1) store_sum<2>();
    if constexpr (kA > 1 && kB > 1) store_sum<3>();
  }
  template <int kSum>
  void store_sum() {
    tiles_.template store<kSum>(before_->to + kSum * kTileFloats, kLine);
  }
  template <int kSum>
  void begin_sum(const PanelStep& step) {
    if (before_.has_value() && before_->to == step.carry && !step.first) return;  // it goes on
    if (before_.has_value()) store_sum<kSum>();
    step.first ? tiles_.template zero<kSum>() : tiles_.template load<kSum>(step.carry + kSum * kTileFloats, kLine);
  }
  void write() {
    if (!before_->last) return;
    for (size_t tile = 0; tile < 2; ++tile)
      before_->outputs.write_tiles(before_->to + 2 * tile * kTileFloats, tile * kTile, before_->row, before_->rows);
  }

  template <int kA, int kB>
  void multiply(const PanelStep& step) {
    if (before_.has_value() && (before_->tiles_of_x != kA || before_->strips != kB)) finish();
    if (step.last)
      for (size_t row = 0; row < 2 * kTile; ++row) step.outputs.fetch(row, step.row, step.panel_rows);
    const WeightPanel& weights = step.panel;
    const size_t fetched = kInPlace ? step.next_bytes / step.blocks / kLine * kLine : 0;
    for (size_t block = 0, at = 0; block < step.blocks; ++block, at += kTileBytes) {
      const std::byte* x = step.x + block * step.width * kLine;
      const bool begins = block == 0;
      tiles_.template load<kWeights>(weights.bytes + at, kLine);
      tiles_.template load_passing<kX>(x, kLine);
      if (begins) begin_sum<0>(step);
      tiles_.template dot_bf16<0, kX, kWeights>();
      if constexpr (kB > 1) {
        tiles_.template load<kWeights + 1>(weights.second + at, kLine);
        if (begins) begin_sum<1>(step);
        tiles_.template dot_bf16<1, kX, kWeights + 1>();
      }
      if constexpr (kA > 1) {
        tiles_.template load_passing<kX + 1>(x + kTileBytes, kLine);
        if (begins) begin_sum<2>(step);
        tiles_.template dot_bf16<2, kX + 1, kWeights>();
        if constexpr (kB > 1) {
          if (begins) begin_sum<3>(step);
          tiles_.template dot_bf16<3, kX + 1, kWeights + 1>();
        }
      }
      for (size_t line = block * fetched; line < (block + 1) * fetched; line += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(step.next.bytes + line), _MM_HINT_T1);
        if constexpr (kB > 1) _mm_prefetch(reinterpret_cast<const char*>(step.next.second + line), _MM_HINT_T1);
      }
    }
    if (before_.has_value()) write();
    float* to = !step.last                                        ? step.carry
                : before_.has_value() && before_->to == step.sums ? step.sums + kCarryFloats
                                                                  : step.sums;
    before_.emplace(Before{kA, kB, to, step.last, step.row, step.panel_rows, step.outputs});
  }

  std::optional<Before> before_;
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
