// Dot products of stored weights with activations of 8 bits.
//
// A sum is defined once, and all kernels compute it to the bit: products of a group of 32 or 16 values are summed as
// whole numbers, scaled, and added to the group's place of eight or sixteen in its unit of 256, unit by unit in order;
// then the places' sums are added in order.
//  - Strips of 16 weight rows, laid out anew when a model is loaded (strip_layouts.h), with any number of rows of x.
//  - A few rows of x with weights as they lie in memory: the groups are the lanes of a vector.
//  - Many rows of x with a panel of 32 weight rows, copied from rows or strips so that weight rows are the lanes: no
//    lane is ever added to another, a weight's code is read from memory once, and four values of x, once they are in a
//    register, are multiplied with all 32.
// AVX-512 has all three; AVX2 has strips, which rows that are not packed are made into on the way.
#pragma once

#include <hwy/base.h>

#include "backend/cpu/strip_layouts.h"
#include "tensor/dtype.h"

namespace godwit::cpu {

struct Int8Weights {
  const std::byte* first;
  size_t stride, rows;  // those that are there, of kDotWeightRows or kPanelWeightRows
  size_t in;
};

inline constexpr size_t kDotWeightRows = 4, kDotRowsOfX = 4;
// The kernels are long: to compile them with a sanitizer takes minutes, and it sees no other accesses with more rows.
inline constexpr size_t kStripRowsOfX = HWY_IS_ASAN ? 2 : 6;
inline constexpr size_t kPanelWeightRows = 32, kPanelLeastRowsOfX = 4, kPanelRowsOfX = 5;

// Lines are asked for these many bytes before they are needed, from memory and then from the second cache: pages end
// the hardware's own prefetching, and the first cache has too few requests of its own under way for memory's latency.
inline constexpr size_t kFarAhead = 8192, kAhead = 2048;

// `x` has rows of `units` units; sums[x row * sums_stride + weight row].
using Int8Dot = void (*)(const Int8Weights& weights, const XUnit* x, size_t units, float* sums, size_t sums_stride);
using FillPanel = void (*)(const Int8Weights& weights, size_t units, std::byte* panel);
using FillPanelOfStrips = void (*)(const std::byte* strips, size_t count, size_t units, std::byte* panel);
using PanelDot = void (*)(const std::byte* panel, const XUnit* x, size_t units, float* sums, size_t sums_stride);

// `first` and `stride` of weights that are packed lead to strips.
// `fetch`: lines are asked for ahead of time; where the hardware follows whole lines by itself, that costs more than it
// brings. Strips that are not read in order are always asked for.
using StripDot = void (*)(const std::byte* strip, const XUnit* x, size_t units, bool fetch, float* sums,
                          size_t sums_stride);

// Weights as they lie in the file, and panels.
struct RowDots {
  Int8Dot dot[kDotRowsOfX];  // for 1, 2, ... rows of x
  size_t panel_unit_bytes;   // of a panel, aligned to 64 bytes
  FillPanel fill;
  FillPanelOfStrips fill_strips;
  PanelDot panel_dot[kPanelRowsOfX - kPanelLeastRowsOfX + 1];  // for kPanelLeastRowsOfX ... rows of x
};

struct Int8Type {
  const XLayout& x;
  const StripDot* strips;  // for 1, 2, ... kStripRowsOfX rows of x
  const RowDots* rows;     // null: rows are made into strips, and there are no panels
};

// For every quantized type, in AVX-512 (needs has_avx512_vnni(), or has_avx512()) and in vectors of 256 bits
// (has_avx_vnni(), has_avx2()).
const Int8Type& int8_type(DType dtype);
const Int8Type& int8_type_avx512(DType dtype);
const Int8Type& int8_type_avx_vnni(DType dtype);
const Int8Type& int8_type_avx2(DType dtype);

}  // namespace godwit::cpu
