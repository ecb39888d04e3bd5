// Where the sums of a kernel in AVX-512 go.
#pragma once

#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/matmul_problem.h"

namespace godwit::cpu {

GODWIT_BF16_BEGIN
inline void write_outputs(const float* sums, const float* bias, bool accumulate, size_t count, float* y) {
  for (size_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = first_floats(count - i);
    __m512 value = _mm512_maskz_loadu_ps(lanes, sums + i);
    if (bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, bias + i));
    if (accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + i), value);
    _mm512_mask_storeu_ps(y + i, lanes, value);
  }
}
GODWIT_BF16_END

// Outputs of some rows of x.
struct TileOutputs {
  const MatmulProblem& problem;
  size_t x_row, x_rows;

  // On their way to the first cache.
  void fetch(size_t row, size_t rows) const {
    for (size_t r = 0; r < x_rows; ++r)
      for (size_t i = 0; i < rows; i += 16) __builtin_prefetch(problem.y[x_row + r] + row + i, 1);
  }
  // sums[row of x][stride] of weight rows [row, row + rows)
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
};

}  // namespace godwit::cpu
