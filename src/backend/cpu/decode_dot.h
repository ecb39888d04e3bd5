// Dot products of stored weights with activations of 8 bits, for the decode phase. Needs has_avx512_bf16().
#pragma once

#include "backend/cpu/decode_x.h"
#include "tensor/dtype.h"

namespace godwit::cpu {

inline constexpr size_t kDotWeightRows = 4, kDotRowsOfX = 4;

struct DecodeWeights {
  const std::byte* first;
  size_t stride, rows;  // of kDotWeightRows: those that are there
  size_t in;
};

// Four weight rows with some rows of x, each of `units` units: sums[x row * sums_stride + weight row].
//
// A sum is two vector accumulators that walk the units in order, one with the offsets and every other vector's
// products, and one fixed reduction of their lanes. Products are summed as whole numbers and scaled.
using DecodeDot = void (*)(const DecodeWeights& weights, const XUnit* x, size_t units, float* sums, size_t sums_stride);

struct DecodeType {
  const XLayout& x;
  DecodeDot dot[kDotRowsOfX];  // for 1, 2, ... rows of x
};

// For every quantized type.
const DecodeType& decode_type(DType dtype);

}  // namespace godwit::cpu
