// The matmul's microkernel: the only loop that multiplies, compiled once per SIMD target.
#if defined(GODWIT_BACKEND_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_BACKEND_CPU_MATMUL_TILE_INL_H_
#undef GODWIT_BACKEND_CPU_MATMUL_TILE_INL_H_
#else
#define GODWIT_BACKEND_CPU_MATMUL_TILE_INL_H_
#endif

#include <hwy/cache_control.h>

#include "backend/cpu/dequant-inl.h"
#include "base/check.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {

inline constexpr size_t kTileCols = 4;  // weight rows per tile
// Accumulators, one row of x or weights, and a spare fill the registers: 32 with AVX-512, 16 otherwise.
inline constexpr size_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 6 : 3;
// A tile's weight row inside a packed panel.
class PackedRow {
 public:
  static constexpr size_t kVecs = 1;
  static constexpr bool kPrefetch = false;
  struct Block {
    const float* data;
    HWY_INLINE FloatVec vec(size_t) const { return hn::Load(FloatTag(), data); }
  };
  PackedRow() = default;
  explicit PackedRow(const float* data) : data_(data) {}
  HWY_INLINE Block block(size_t step) const { return {data_ + step * kTileCols * kLanes}; }
  HWY_INLINE FloatVec tail(size_t, size_t) const { return hn::Zero(FloatTag()); }

 private:
  const float* data_ = nullptr;
};

// Stores the sums of the lanes of four vectors: halves are added until four lanes are left, then (0 + 2) + (1 + 3).
template <class D, class V>
HWY_INLINE void store_sums(D d, V a, V b, V c, V e, float* out) {
#if HWY_TARGET == HWY_SCALAR
  for (V sum : {a, b, c, e}) hn::Store(sum, d, out++);
#else
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    const auto fold = [half](V v) HWY_ATTR { return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)); };
    store_sums(half, fold(a), fold(b), fold(c), fold(e), out);
  } else {
    const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
    hn::StoreU(hn::Add(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab)), d, out);
  }
#endif
}

// One call of the microkernel: packed rows of x against four weight rows over `in` values of K. A long K comes in
// several calls that carry the accumulators in memory, so that what a call reads stays in the first cache; order and
// rounding are those of a single call.
struct TileSpan {
  const float* x;
  size_t in;
  size_t ahead;            // bytes from a weight row to the one to prefetch
  float* carry = nullptr;  // [rows][kTileCols][lane]
  bool first = true, last = true;
};

// out[row][col] = dot of kRows packed rows of x with four weight rows, written by the last call of a K. Rows are too
// short for the hardware to see them coming: what lies `ahead`, the next tile, is prefetched.
template <size_t kRows, class Row>
HWY_NOINLINE void dot_tile(const Row* w, const TileSpan& span, float* out) {
  const FloatTag df;
  FloatVec acc[kRows][kTileCols];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (size_t c = 0; c < kTileCols; ++c)
      acc[r][c] = span.first ? hn::Zero(df) : hn::Load(df, span.carry + (r * kTileCols + c) * kLanes);

  const Row rows[kTileCols] = {w[0], w[1], w[2], w[3]};
  const float* x = span.x;
  constexpr size_t kStep = Row::kVecs * kLanes;
  const size_t steps = span.in / kStep;
  for (size_t step = 0; step < steps; ++step, x += kRows * kStep) {
#pragma GCC unroll 4
    for (size_t c = 0; c < kTileCols; ++c) {
      if constexpr (Row::kPrefetch) hwy::Prefetch(rows[c].at(step) + span.ahead);
      const auto block = rows[c].block(step);
#pragma GCC unroll 8
      for (size_t i = 0; i < Row::kVecs; ++i) {
        const FloatVec value = block.vec(i);
#pragma GCC unroll 8
        for (size_t r = 0; r < kRows; ++r)
          acc[r][c] = hn::MulAdd(hn::Load(df, x + (i * kRows + r) * kLanes), value, acc[r][c]);
      }
    }
  }
  if (const size_t rest = span.in - steps * kStep; rest != 0) {
#pragma GCC unroll 4
    for (size_t c = 0; c < kTileCols; ++c) {
      const FloatVec value = rows[c].tail(steps, rest);
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) acc[r][c] = hn::MulAdd(hn::Load(df, x + r * kLanes), value, acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    if (span.last) {
      store_sums(df, acc[r][0], acc[r][1], acc[r][2], acc[r][3], out + r * kTileCols);
    } else {
#pragma GCC unroll 4
      for (size_t c = 0; c < kTileCols; ++c) hn::Store(acc[r][c], df, span.carry + (r * kTileCols + c) * kLanes);
    }
  }
}

template <class Row>
void dot_rows(size_t rows, const Row* w, const TileSpan& span, float* out) {
  switch (rows) {
    case 1:
      return dot_tile<1>(w, span, out);
    case 2:
      return dot_tile<2>(w, span, out);
    case 3:
      return dot_tile<3>(w, span, out);
  }
  if constexpr (kTileRows > 3) {
    switch (rows) {
      case 4:
        return dot_tile<4>(w, span, out);
      case 5:
        return dot_tile<5>(w, span, out);
      case 6:
        return dot_tile<6>(w, span, out);
    }
  }
  GODWIT_CHECK(false, "a tile of {} rows", rows);
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
