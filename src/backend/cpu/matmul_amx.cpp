// y^T = W x^T in tiles: 16 weight rows of 32 values are an A as they lie in the panel, 16 rows of x a B. A panel of
// four A tiles shares each B, so that of five tile loads four hit the first cache; a sum is one tile register that
// walks K in order, for one row of x as for many.
#include <utility>

#include "backend/cpu/matmul_panels.h"
#include "backend/cpu/tiles.h"

namespace godwit::cpu {
namespace {

constexpr size_t kTile = 16;  // rows of a tile, and columns of fp32

GODWIT_BF16_BEGIN

// B wants pairs of values of K together: [in / 32][16 pairs][width][2].
void pack_pairs(const float* const* rows, size_t count, size_t width, size_t in, uint16_t* to) {
  const __mmask16 lanes = first_floats(width);
  for (size_t k = 0; k < in; k += kBf16Block) {
    __m512i v[kTile];
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r) v[r] = r < count ? load_bf16(rows[r] + k, in - k) : _mm512_setzero_si512();
    transpose(v);
#pragma GCC unroll 16
    for (size_t pair = 0; pair < kTile; ++pair, to += 2 * width) _mm512_mask_storeu_epi32(to, lanes, v[pair]);
  }
}

// C tiles [weight row][16] to sums[x row][weight row].
void store_transposed(const float* tiles, size_t count, size_t x_rows, size_t stride, float* sums) {
  for (size_t i = 0; i < count; ++i) {
    __m512i v[kTile];
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r) v[r] = _mm512_load_si512(tiles + (i * kTile + r) * kTile);
    transpose(v);
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r)
      if (r < x_rows) _mm512_store_si512(sums + r * stride + i * kTile, v[r]);
  }
}

GODWIT_BF16_END

template <class Tiles>
class AmxKernel {
 public:
  static constexpr size_t kPanelRows = 4 * kTile, kChunk = 256;  // 32 KiB
  static constexpr size_t kTileRows = kTile, kBlockTiles = 32;
  static constexpr size_t kTaskRows = 4 * kPanelRows, kRowStep = kTile;
  static constexpr size_t kCarryFloats = kPanelRows * kTile;
  static constexpr bool kKeepsSums = true;
  static constexpr size_t kDirectRows = 0;

  explicit AmxKernel(size_t width) : tiles_(shapes(static_cast<int>(width))) {}

  static size_t tile_width(size_t, size_t all) { return std::min(all, kTile); }
  static void pack(const float* const* rows, size_t count, size_t width, size_t in, uint16_t* to) {
    pack_pairs(rows, count, width, in, to);
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

 private:
  static constexpr int kX = 4, kWeights = 5, kSpares = 3;  // tiles 0 to 3 are sums
  static constexpr size_t kSumStride = kTile * sizeof(float), kTileFloats = kTile * kTile;

  static TileShapes shapes(int width) {
    const TileShape sums{kTile, 4 * width}, x{kTile, 4 * width}, weights{kTile, 64};
    return {sums, sums, sums, sums, x, weights, weights, weights};
  }

  template <int... kI>
  void multiply(const PanelStep& step, std::integer_sequence<int, kI...>) {
    if (step.first) {
      (tiles_.template zero<kI>(), ...);
    } else if (step.carry != nullptr) {
      (tiles_.template load<kI>(step.carry + kI * kTileFloats, kSumStride), ...);
    }
    const uint16_t *panel = step.panel, *x = step.x;
    const size_t x_stride = 2 * step.width;
    for (size_t block = 0; block < step.blocks; ++block) {
      tiles_.template load<kX>(x, x_stride * sizeof(uint16_t));
      (multiply_tile<kI>(panel), ...);
      panel += kPanelRows * kBf16Block;
      x += kTile * x_stride;
    }
    if (step.last) {
      alignas(64) float out[kCarryFloats];
      (tiles_.template store<kI>(out + kI * kTileFloats, kSumStride), ...);
      store_transposed(out, sizeof...(kI), step.x_rows, kPanelRows, step.sums);
    } else if (step.carry != nullptr) {
      (tiles_.template store<kI>(step.carry + kI * kTileFloats, kSumStride), ...);
    }
  }

  template <int kI>
  void multiply_tile(const uint16_t* panel) {
    constexpr int kA = kWeights + kI % kSpares;
    tiles_.template load<kA>(panel + kI * kTile * kBf16Block, kBf16Block * sizeof(uint16_t));
    tiles_.template dot_bf16<kI, kA, kX>();
  }

  Tiles tiles_;
};

template <class Tiles>
void matmul(Context& context, const MatmulArgs& args) {
  PanelMatmul<AmxKernel<Tiles>>(context, matmul_problem(args)).run();
}

template <class Tiles>
void expert_matmul(Context& context, const ExpertMatmulArgs& args) {
  PanelMatmul<AmxKernel<Tiles>>(context, matmul_problem(args)).run();
}

}  // namespace

void fill_matmul_amx(Kernels& table) {
  table.matmul = matmul<AmxTiles>;
  table.expert_matmul = expert_matmul<AmxTiles>;
}

void fill_matmul_amx_emulated(Kernels& table) {
  table.matmul = matmul<EmulatedTiles>;
  table.expert_matmul = expert_matmul<EmulatedTiles>;
}

}  // namespace godwit::cpu
