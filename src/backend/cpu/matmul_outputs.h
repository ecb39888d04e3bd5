// Where the sums of a kernel in AVX-512 go.
#pragma once

#include <algorithm>

#include "backend/cpu/avx512_vectors.h"
#include "backend/cpu/matmul_problem.h"

namespace godwit::cpu {

GODWIT_AVX512_BEGIN

HWY_INLINE void write_outputs(const float* sums, const float* bias, bool accumulate, size_t count, float* y) {
  for (size_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = first_floats(count - i);
    __m512 value = _mm512_maskz_loadu_ps(lanes, sums + i);
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, bias + i));
    if (accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + i), value);
    _mm512_mask_storeu_ps(y + i, lanes, value);
  }
}

// A whole line, to memory. REQUIRES: end_outputs() before another thread reads it.
HWY_INLINE void pass_outputs(const float* sums, const float* bias, float* y) {
  __m512 value = _mm512_load_ps(sums);
  if (bias != nullptr) value = _mm512_add_ps(value, _mm512_loadu_ps(bias));
  _mm512_stream_ps(y, value);
}
inline void end_outputs() {
  _mm_sfence();
}

// Outputs of some rows of x.
//
// Sums of a pair of products, y = gated(x G^T, x W^T), come as strips of sixteen weight rows of G and of W in turn.
struct TileOutputs {
  const MatmulProblem& problem;
  size_t x_row, x_rows;
  const MatmulProblem* gate = nullptr;  // of G

  // sums[row of x][stride] of weight rows [row, row + rows); not of a pair
  void write(float* sums, size_t stride, size_t row, size_t rows) const {
    for (size_t r = 0; r < x_rows; ++r, sums += stride) write_row(sums, r, row, rows, false);
  }

  // Outputs [row, row + rows) of row r of x, on their way to the first cache.
  void fetch(size_t r, size_t row, size_t rows) const {
    if (r >= x_rows || past_caches()) return;
    const float* y = problem.y[x_row + r] + row;
    for (size_t i = 0; i < rows; i += 16) __builtin_prefetch(y + i, 1);
  }
  // The same from tiles of sums, [16 rows of x][16 weight rows] in whole cache lines, of which the first begins with
  // row `first` of x and the others follow strip by strip. REQUIRES: end_outputs() in the end.
  void write_tiles(float* tiles, size_t first, size_t row, size_t rows) const {
    if (first >= x_rows) return;
    const size_t count = std::min<size_t>(16, x_rows - first);
    for (size_t i = 0; i < rows; i += 16, tiles += 256) {
      const size_t columns = std::min<size_t>(16, rows - i);
      if (gate != nullptr) {
        float* up = tiles + 256;
        add_bias(tiles, gate->bias, row + i, count);
        add_bias(up, problem.bias, row + i, count);
        problem.gated(tiles, up, up, static_cast<int64_t>(16 * count));
        tiles = up;
      }
      for (size_t r = 0; r < count; ++r) write_row(tiles + 16 * r, first + r, row + i, columns, columns == 16);
    }
  }

 private:
  // What is read again at once, as y is by the second of two that are not a pair, had better stay.
  bool past_caches() const { return problem.past_caches && (problem.gated == nullptr || gate != nullptr); }

  // Sums of a pair are combined, and have their biases. `line`: they are a line of a tile.
  HWY_INLINE void write_row(float* sums, size_t r, size_t row, size_t count, bool line) const {
    float* y = problem.y[x_row + r] + row;
    const float* bias = gate == nullptr && problem.bias != nullptr ? problem.bias + row : nullptr;
    if (problem.gated != nullptr && gate == nullptr) {
      if (bias != nullptr) write_outputs(sums, bias, false, count, sums);
      return problem.gated(y, sums, y, static_cast<int64_t>(count));
    }
    if (line && past_caches()) return pass_outputs(sums, bias, y);
    write_outputs(sums, bias, problem.accumulate, count, y);
  }
  static void add_bias(float* sums, const float* bias, size_t row, size_t count) {
    for (size_t r = 0; bias != nullptr && r < count; ++r, sums += 16) write_outputs(sums, bias + row, false, 16, sums);
  }
};

GODWIT_AVX512_END

}  // namespace godwit::cpu
