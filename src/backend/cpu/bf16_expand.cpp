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
void expand_rows(const WeightRows& weights, uint16_t* panel, size_t panel_rows) {
  const WeightRows w = weights;
  for (size_t r = 0; r < w.rows; ++r)
    walk_row<Type>(w.first + r * w.stride, w.k, w.count, w.ahead,
                   PanelSink{panel + r * kBf16Block, panel_rows * kBf16Block});
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

// Four rows take turns, so that their sums' latencies overlap.
template <class Type, size_t kRows>
void dot_rows(const WeightRows& weights, const uint16_t* x, float* out) {
  const Type type;
  const WeightRows w = weights;
  const std::byte* from[4];
  DotSink<kRows> sinks[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    from[i] = w.first + std::min(i, w.rows - 1) * w.stride + w.k / kSuperBlock * Type::kUnitBytes;
    sinks[i].x = x;
    for (__m512& sum : sinks[i].sums) sum = _mm512_setzero_ps();
  }
  size_t count = w.count;
  for (; count >= kSuperBlock; count -= kSuperBlock) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
#pragma GCC unroll 8
      for (size_t line = 0; line < Type::kUnitBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(from[i]) + w.ahead + line, _MM_HINT_T0);
      type.template unit<8>(from[i], sinks[i]);
      sinks[i].skip(8);
      from[i] += Type::kUnitBytes;
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) walk_rest<Type>(from[i], count, sinks[i]);
#pragma GCC unroll 2
  for (size_t r = 0; r < kRows; ++r)
    _mm_storeu_ps(out + 4 * r, sum_lanes(sinks[0].sums[r], sinks[1].sums[r], sinks[2].sums[r], sinks[3].sums[r]));
}

template <size_t kRows>
struct DotFunctions {
  template <class Type>
  static DotRows of() {
    return dot_rows<Type, kRows>;
  }
};

}  // namespace

ExpandRows expand_rows_to_bf16(DType dtype) {
  return bf16_function<ExpandFunctions>(dtype);
}

DotRows dot_rows_in_bf16(DType dtype, size_t x_rows) {
  GODWIT_CHECK(x_rows == 1 || x_rows == kDotXRows);
  return x_rows == 1 ? bf16_function<DotFunctions<1>>(dtype) : bf16_function<DotFunctions<kDotXRows>>(dtype);
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
