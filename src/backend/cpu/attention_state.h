// The sums of an attention walk: as blocks of queries keep them, and as they stand in a tensor between calls.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/attention.h"

namespace godwit::cpu {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// One (row, query head) of AttentionArgs::state: the output's numbers, the maximum, the sum.
inline float* state_at(const Tensor& state, size_t row, size_t head) {
  return reinterpret_cast<float*>(state.data + row * state.row_stride_bytes) +
         head * static_cast<size_t>(state.shape[2]);
}
inline void store_empty(float* to, size_t head_dim) {
  std::fill_n(to, head_dim, 0.0f);
  to[head_dim] = kMinusInfinity;
  to[head_dim + 1] = 0;
}

// Unnormalised softmax of a set of slots for each query of a block. Empty: sum = 0, max = -inf, out = 0.
struct State {
  State(float* memory, size_t count, size_t row_width)
      : out(memory), max(memory + count * row_width), sum(max + count), queries(count), width(row_width) {}
  static size_t floats(size_t queries, size_t width) {  // whole lines, so that states side by side stay aligned
    return (queries * (width + 2) + 15) / 16 * 16;
  }

  void clear() {
    std::fill_n(out, queries * width, 0.0f);
    std::fill_n(max, queries, kMinusInfinity);
    std::fill_n(sum, queries, 0.0f);
  }
  // REQUIRES: what the row has beyond head_dim is 0, as clear() leaves it.
  void load(size_t query, const float* from, size_t head_dim) {
    std::copy_n(from, head_dim, out + query * width);
    max[query] = from[head_dim];
    sum[query] = from[head_dim + 1];
  }
  void store(size_t query, float* to, size_t head_dim) const {
    std::copy_n(out + query * width, head_dim, to);
    to[head_dim] = max[query];
    to[head_dim + 1] = sum[query];
  }
  void normalise(size_t query, const AttnPartial& partial, size_t row, size_t head, size_t head_dim) const {
    auto* to = reinterpret_cast<float*>(partial.out.data + row * partial.out.row_stride_bytes) + head * head_dim;
    auto* lse = reinterpret_cast<float*>(partial.lse.data + row * partial.lse.row_stride_bytes) + head;
    const float total = sum[query];
    *lse = total == 0 ? kMinusInfinity : max[query] + std::log(total);
    const float* from = out + query * width;
    if (total == 0) {
      std::fill_n(to, head_dim, 0.0f);
    } else {
      for (size_t i = 0; i < head_dim; ++i) to[i] = from[i] / total + 0.0f;  // no -0
    }
  }

  float* out;  // [queries, width]
  float* max;  // [queries]
  float* sum;  // [queries]
  size_t queries, width;
};

}  // namespace godwit::cpu
