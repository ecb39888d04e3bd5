// Dot products of stored weights with activations of 8 bits. Needs has_avx512_bf16().
//
// A sum is defined once, and two kernels compute it to the bit: products of a group of 32 or 16 values are summed as
// whole numbers, scaled, and added to the group's place of eight or sixteen in its unit of 256, unit by unit in order;
// then the places' sums are added in order.
//  - A few rows of x with weights as they lie in memory: the groups are the lanes of a vector.
//  - Many rows of x with a panel of 32 weight rows, copied so that weight rows are the lanes: no lane is ever added to
//    another, and a weight's code is read from memory once.
#pragma once

#include "backend/cpu/int8_x.h"
#include "tensor/dtype.h"

namespace godwit::cpu {

struct Int8Weights {
  const std::byte* first;
  size_t stride, rows;  // those that are there, of kDotWeightRows or kPanelWeightRows
  size_t in;
};

inline constexpr size_t kDotWeightRows = 4, kDotRowsOfX = 4;
inline constexpr size_t kPanelWeightRows = 32, kPanelLeastRowsOfX = 4, kPanelRowsOfX = 6;

// `x` has rows of `units` units; sums[x row * sums_stride + weight row].
using Int8Dot = void (*)(const Int8Weights& weights, const XUnit* x, size_t units, float* sums, size_t sums_stride);
using FillPanel = void (*)(const Int8Weights& weights, size_t units, std::byte* panel);
using PanelDot = void (*)(const std::byte* panel, const XUnit* x, size_t units, float* sums, size_t sums_stride);

struct Int8Type {
  const XLayout& x;
  Int8Dot dot[kDotRowsOfX];  // for 1, 2, ... rows of x
  size_t panel_unit_bytes;   // of a panel, aligned to 64 bytes
  FillPanel fill;
  PanelDot panel_dot[kPanelRowsOfX - kPanelLeastRowsOfX + 1];  // for kPanelLeastRowsOfX ... rows of x
};

// For every quantized type.
const Int8Type& int8_type(DType dtype);

}  // namespace godwit::cpu
