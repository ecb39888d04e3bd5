// Products of bf16 numbers in AVX-512, in the shape of the fp32 kernel: a sum is one vector accumulator that walks K,
// each of its 16 lanes every sixteenth pair of values, and one fixed reduction of the lanes.
#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/matmul_panels.h"

namespace godwit::cpu {
namespace {

constexpr size_t kRows = 6,
                 kCols = 4;  // of x and of weights: 24 accumulators, four weights and one x fill 32 registers
// Weight rows of a panel, which stays in the second cache while all rows of x pass by, each tile of them once.
constexpr size_t kPanel = 64, kChunkValues = 2048;
// Weights that are read once are asked for this much ahead: the hardware's own prefetching ends at pages of 4 KiB,
// which those of a mapped file are.
constexpr ptrdiff_t kStreamAhead = 4096;

GODWIT_BF16_BEGIN

// Of a panel the four rows from `col` on.
template <size_t kCount>
void multiply_rows(const PanelStep& step, size_t col) {
  float *carry = step.carry + col * kRows * 16, *sums = step.sums + col;
  __m512 acc[kCount][kCols];
#pragma GCC unroll 8
  for (size_t r = 0; r < kCount; ++r)
#pragma GCC unroll 4
    for (size_t c = 0; c < kCols; ++c)
      acc[r][c] = step.first ? _mm512_setzero_ps() : _mm512_load_ps(carry + (r * kCols + c) * 16);
  const auto *panel = reinterpret_cast<const uint16_t*>(step.panel.bytes) + col * kChunkValues,
             *x = reinterpret_cast<const uint16_t*>(step.x);
  for (size_t block = 0; block < step.blocks; ++block) {
    __m512bh weights[kCols];
#pragma GCC unroll 4
    for (size_t c = 0; c < kCols; ++c) weights[c] = (__m512bh)_mm512_load_si512(panel + c * kBf16Block);
#pragma GCC unroll 8
    for (size_t r = 0; r < kCount; ++r) {
      const auto value = (__m512bh)_mm512_load_si512(x + r * kBf16Block);
#pragma GCC unroll 4
      for (size_t c = 0; c < kCols; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], value, weights[c]);
    }
    panel += kCols * kBf16Block;
    x += kCount * kBf16Block;
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kCount; ++r) {
    if (step.last) {
      _mm_store_ps(sums + r * kPanel, sum_lanes(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
    } else {
#pragma GCC unroll 4
      for (size_t c = 0; c < kCols; ++c) _mm512_store_ps(carry + (r * kCols + c) * 16, acc[r][c]);
    }
  }
}

GODWIT_BF16_END

class Avx512Kernel {
 public:
  static constexpr size_t kBlock = kBf16Block, kTailBytes = 0, kLag = 0;
  static constexpr size_t kPanelRows = kPanel, kChunk = kChunkValues;
  static constexpr size_t kTileRows = kRows, kBlockTiles = 128;
  static constexpr size_t kTaskRows = kPanel, kRowStep = kCols;
  static constexpr size_t kCarryFloats = kRows * kPanel * 16;
  static constexpr size_t kStreamRows = kDotXRows;
  static constexpr bool kInPlace = false, kPairs = false;

  explicit Avx512Kernel(size_t) {}

  static size_t tile_width(size_t rows, size_t) { return rows; }
  static size_t blocks(size_t in) { return (in + kBlock - 1) / kBlock; }
  static ExpandRows expander(DType dtype, bool) { return expand_rows_to_bf16(dtype); }  // plain numbers alone come here
  static bool same_x(DType, DType) { return true; }
  static void pack(DType, const float* const* rows, size_t count, size_t width, size_t k, size_t end, std::byte* to) {
    pack_bf16_rows(rows, count, width, k, end, reinterpret_cast<uint16_t*>(to));
  }
  static WeightPanel panel(ExpandRows expand, const PanelWeights& weights, std::byte* to) {
    for (size_t col = 0; col < weights.rows.rows; col += kCols) {
      WeightRows rows = weights.rows;
      rows.first += col * rows.stride;
      rows.rows = std::min(kCols, rows.rows - col);
      expand(rows, to + col * kChunk * sizeof(uint16_t), kCols);
    }
    return {to, nullptr};
  }

  void multiply(const PanelStep& step) {
    constexpr void (*kByRows[])(const PanelStep&, size_t col) = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>,
                                                                 multiply_rows<4>, multiply_rows<5>, multiply_rows<6>};
    for (size_t col = 0; col < step.panel_rows; col += kCols) kByRows[step.outputs.x_rows - 1](step, col);
    if (step.last) step.outputs.write(step.sums, kPanelRows, step.row, step.panel_rows);
  }
  void finish() {}

  static size_t stream_bytes(size_t) { return 0; }
  static void stream(const WeightStream<ExpandRows>& s) {
    const DotRows dot = dot_rows_in_bf16(s.outputs.problem.dtype, s.outputs.x_rows);
    float sums[kStreamRows * kCols];
    for (size_t row = s.begin; row < s.end; row += kCols) {
      WeightRows weights = s.rows(row, std::min(kCols, s.end - row));
      weights.ahead = kStreamAhead;
      dot(weights, reinterpret_cast<const uint16_t*>(s.x), sums);
      s.outputs.write(sums, kCols, row, weights.rows);
    }
  }
};

}  // namespace

void fill_matmul_bf16(Kernels& table) {
  fill_matmul_of<matmul_panels<Avx512Kernel>, matmul_int8>(table);
}

}  // namespace godwit::cpu
