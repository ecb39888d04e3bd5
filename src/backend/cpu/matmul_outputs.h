// Where the sums of a kernel in AVX-512 go.
#pragma once

#include <algorithm>

#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/matmul_problem.h"

namespace godwit::cpu {

GODWIT_BF16_BEGIN

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
    const float* bias = problem.bias != nullptr ? problem.bias + row : nullptr;
    for (size_t r = 0; r < x_rows; ++r, sums += stride) {
      float* y = problem.y[x_row + r] + row;
      if (problem.gated == nullptr) {
        write_outputs(sums, bias, problem.accumulate, rows, y);
      } else {
        if (bias != nullptr) write_outputs(sums, bias, false, rows, sums);
        problem.gated(y, sums, y, static_cast<int64_t>(rows));
      }
    }
  }

  // Outputs [row, row + rows) of row r of x, on their way to the first cache.
  void fetch(size_t r, size_t row, size_t rows) const {
    if (r >= x_rows || problem.past_caches) return;
    const float* y = problem.y[x_row + r] + row;
    for (size_t i = 0; i < rows; i += 16) __builtin_prefetch(y + i, 1);
  }
  // The same of rows [begin, end) of x, from tiles of sums, [16 rows of x][16 weight rows], of which the first has row
  // `tile_row` of x and the others follow strip by strip.
  void write_tiles(float* tiles, size_t tile_row, size_t begin, size_t end, size_t row, size_t rows) const {
    end = std::min(end, x_rows);
    if (begin >= end) return;
    float* first = tiles + (begin - tile_row) * 16;
    const size_t count = end - begin;
    for (size_t i = 0; i < rows; i += 16, first += 256) {
      const size_t columns = std::min<size_t>(16, rows - i);
      if (gate != nullptr) {
        float* up = first + 256;
        add_bias(first, gate->bias, row + i, count);
        add_bias(up, problem.bias, row + i, count);
        problem.gated(first, up, up, static_cast<int64_t>(16 * count));
        first = up;
      } else if (problem.gated != nullptr) {
        for (size_t r = 0; r < count; ++r) gate_one(first + 16 * r, begin + r, row + i, columns);
        continue;
      }
      const float* bias = gate == nullptr && problem.bias != nullptr ? problem.bias + row + i : nullptr;
      for (size_t r = 0; r < count; ++r) {
        float* y = problem.y[x_row + begin + r] + row + i;
        if (problem.past_caches && columns == 16)
          pass_outputs(first + 16 * r, bias, y);
        else
          write_outputs(first + 16 * r, bias, problem.accumulate, columns, y);
      }
    }
  }

 private:
  void add_bias(float* sums, const float* bias, size_t row, size_t count) const {
    for (size_t r = 0; bias != nullptr && r < count; ++r)
      write_outputs(sums + 16 * r, bias + row, false, 16, sums + 16 * r);
  }
  void gate_one(float* sums, size_t r, size_t row, size_t columns) const {
    float* y = problem.y[x_row + r] + row;
    if (problem.bias != nullptr) write_outputs(sums, problem.bias + row, false, columns, sums);
    problem.gated(y, sums, y, static_cast<int64_t>(columns));
  }
};

GODWIT_BF16_END

}  // namespace godwit::cpu
