// Row access and work splitting shared by the elementwise kernels and their references.
#pragma once

#include <algorithm>

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

template <class T = float>
T* row_of(const Tensor& tensor, int64_t row) {
  return reinterpret_cast<T*>(tensor.data + static_cast<size_t>(row) * tensor.row_stride_bytes);
}

inline void check_f32(const Tensor& tensor) {
  GODWIT_CHECK(tensor.dtype == DType::kF32);
}

inline void check_same_shape(const Tensor& a, const Tensor& b) {
  check_f32(a);
  check_f32(b);
  GODWIT_CHECK(a.rows() == b.rows() && a.row_elements() == b.row_elements(), "[{}, {}] against [{}, {}]", a.rows(),
               a.row_elements(), b.rows(), b.row_elements());
}

inline constexpr int64_t kTaskElements = 16 * 1024;  // what pays for waking a thread

// fn(row) for each row of `row_elements` values, in parallel when there is enough to do.
template <class Fn>
void for_rows(Context& context, int64_t rows, int64_t row_elements, Fn&& fn) {
  const int64_t per_task = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(row_elements, 1));
  const int64_t tasks = (rows + per_task - 1) / per_task;
  context.pool.parallel_for(tasks, [&](int64_t task) {
    for (int64_t row = task * per_task; row < std::min(rows, (task + 1) * per_task); ++row) fn(row);
  });
}

// fn(row, begin, end) for column ranges that cover every row: for operations in which elements do not meet.
template <class Fn>
void for_spans(Context& context, int64_t rows, int64_t columns, Fn&& fn) {
  const int64_t spans = (columns + kTaskElements - 1) / kTaskElements;
  for_rows(context, rows * spans, std::min(columns, kTaskElements), [&](int64_t i) {
    const int64_t begin = i % spans * kTaskElements;
    fn(i / spans, begin, std::min(columns, begin + kTaskElements));
  });
}

// The checks of each operation; every target and the reference call them.
void check_embed(const Tensor& tokens, const Tensor& table, const Tensor& out);
void check_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out);
void check_rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out);
void check_rope(const RopeArgs& args);
void check_combine_experts(const Tensor& x, const Tensor& weights, const Tensor& out);

// cos and sin of position * inv_freq[i] in fp32, as transformers computes them, times the magnitude.
void rope_table(const RopeArgs& args, int64_t row, float* cosines, float* sines);

}  // namespace godwit::cpu
