#include "backend/cpu/bf16_expand.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/bf16_expand.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/dequant_blocks-inl.h"  // in every pass: its guard counts them

#if HWY_TARGET == HWY_AVX3
#include "backend/cpu/bf16_types-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu::HWY_NAMESPACE {
namespace {

struct PanelSink {
  uint16_t* to;
  size_t stride;
  HWY_INLINE void put(size_t block, __m512i values) { _mm512_store_si512(to + block * stride, values); }
  HWY_INLINE void skip(size_t blocks) { to += blocks * stride; }
};

template <class Type>
void expand_rows(const WeightRows& weights, void* panel, size_t panel_rows) {
  const WeightRows w = weights;
  for (size_t r = 0; r < w.rows; ++r)
    walk_row<Type>(w.first + r * w.stride, w.k, w.count, w.ahead,
                   PanelSink{static_cast<uint16_t*>(panel) + r * kBf16Block, panel_rows * kBf16Block});
}

struct ExpandFunctions {
  template <class Type>
  static ExpandRows of() {
    return expand_rows<Type>;
  }
};

// One weight row's sums with kRows rows of x.
template <size_t kRows>
struct DotSink {
  const uint16_t* x;
  __m512 sums[kRows];
  HWY_INLINE void put(size_t block, __m512i values) {
#pragma GCC unroll 2
    for (size_t r = 0; r < kRows; ++r)
      sums[r] = _mm512_dpbf16_ps(sums[r], (__m512bh)_mm512_load_si512(x + (block * kRows + r) * kBf16Block),
                                 (__m512bh)values);
  }
  HWY_INLINE void skip(size_t blocks) {
    x += blocks * kRows * kBf16Block;
  }
};

// A weight row on its way through its units of 256 values.
template <class Type, size_t kRows>
struct RowWalk {
  const std::byte* from;
  DotSink<kRows> sink;

  HWY_INLINE RowWalk(const WeightRows& w, size_t row, const uint16_t* x)
      : from(w.first + std::min(row, w.rows - 1) * w.stride), sink{x, {}} {
    for (__m512& sum : sink.sums) sum = _mm512_setzero_ps();
  }
  HWY_INLINE void walk(const WeightRows& w) {
    for (size_t k = kSuperBlock; k <= w.count; k += kSuperBlock, from += Type::kUnitBytes)
      walk_unit<Type>(from, w.ahead, sink);
    walk_rest<Type>(from, w.count % kSuperBlock, sink);
  }
};

// Four rows one after the other, as they lie in memory, which the hardware fetches ahead by itself; one chain of
// products keeps up with that. (Not an array of rows: GCC would keep that in memory.)
template <class Type, size_t kRows>
void dot_rows(const WeightRows& weights, const uint16_t* x, float* out) {
  const WeightRows w = weights;
  RowWalk<Type, kRows> a(w, 0, x), b(w, 1, x), c(w, 2, x), d(w, 3, x);
  a.walk(w);
  b.walk(w);
  c.walk(w);
  d.walk(w);
#pragma GCC unroll 2
  for (size_t r = 0; r < kRows; ++r)
    _mm_storeu_ps(out + 4 * r, sum_lanes(a.sink.sums[r], b.sink.sums[r], c.sink.sums[r], d.sink.sums[r]));
}

}  // namespace

ExpandRows expand_rows_to_bf16(DType dtype) {
  return bf16_function<ExpandFunctions>(dtype);
}

DotRows dot_rows_in_bf16(DType dtype, size_t x_rows) {
  GODWIT_CHECK(x_rows == 1 || x_rows == kDotXRows);
  GODWIT_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "{} weights are not read as they are", dtype_name(dtype));
  using Bf16 = PlainType<Bf16Numbers>;
  using F16 = PlainType<F16Numbers>;
  if (dtype == DType::kBF16) return x_rows == 1 ? dot_rows<Bf16, 1> : dot_rows<Bf16, kDotXRows>;
  return x_rows == 1 ? dot_rows<F16, 1> : dot_rows<F16, kDotXRows>;
}

}  // namespace godwit::cpu::HWY_NAMESPACE
GODWIT_BF16_END
#endif

#if HWY_ONCE
namespace godwit::cpu {
ExpandRows expand_rows_to_bf16(DType dtype) {
  return N_AVX3::expand_rows_to_bf16(dtype);
}
DotRows dot_rows_in_bf16(DType dtype, size_t x_rows) {
  return N_AVX3::dot_rows_in_bf16(dtype, x_rows);
}
}  // namespace godwit::cpu
#endif
