#include "backend/cpu/decode_dot.h"

#include <algorithm>

#include "backend/cpu/decode_types-inl.h"
#include "base/check.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

// For each sum of a unit, the lane of the scales that each of its lanes is multiplied with.
template <class Type>
struct ScaleLanes {
  static constexpr size_t kSums = Type::kSharedSums ? 2 : 4;
  alignas(64) int32_t lanes[kSums][16];
  constexpr ScaleLanes() : lanes() {
    for (size_t sum = 0; sum < kSums; ++sum)
      for (size_t lane = 0; lane < 16; ++lane)
        lanes[sum][lane] = static_cast<int32_t>(Type::kX.scale_lane(sum * (16 / kSums) + lane / 4));
  }
};
template <class Type>
inline constexpr ScaleLanes<Type> kScaleLanes;

// Rows are read one after the other, as they lie in memory: four at a time would be half as fast. This many bytes
// before they are needed, lines are asked for; pages end the hardware's own prefetching.
constexpr size_t kAhead = 3072;

// A weight row on its way through its units, and its sums with kRows rows of x.
template <class Type, size_t kRows>
struct RowWalk {
  static constexpr size_t kSums = ScaleLanes<Type>::kSums, kVectors = 4 / kSums;
  const std::byte* from;
  __m512 totals[kRows][2];

  HWY_INLINE RowWalk(const DecodeWeights& w, size_t row) : from(w.first + std::min(row, w.rows - 1) * w.stride) {
    for (auto& total : totals) total[0] = total[1] = _mm512_setzero_ps();
  }

  HWY_INLINE void walk(const DecodeWeights& w, const XUnit* x, size_t units) {
    for (size_t k = kUnitValues; k <= w.in; k += kUnitValues, from += Type::kUnitBytes, ++x) {
      for (size_t line = 0; line < Type::kUnitBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead + line, _MM_HINT_T0);
      multiply(from, x, units);
    }
    if constexpr (requires { Type::kSmallBlocks; }) {
      const size_t rest = w.in % kUnitValues;
      if (rest == 0) return;
      alignas(64) std::byte padded[Type::kUnitBytes] = {};
      std::memcpy(padded, from, rest / 32 * (Type::kUnitBytes / 8));
      multiply(padded, x, units);
    }
  }
  HWY_INLINE __m512 total(size_t r) const { return _mm512_add_ps(totals[r][0], totals[r][1]); }

 private:
  HWY_INLINE void multiply(const std::byte* unit, const XUnit* x, size_t units) {
    WeightUnit w;
    Type::load(unit, w);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r, x += units) {
      totals[r][0] = _mm512_fmadd_ps(w.offsets, _mm512_load_ps(x->offsets), totals[r][0]);
      const __m512 scales = _mm512_mul_ps(w.scales, _mm512_load_ps(x->scales));
#pragma GCC unroll 4
      for (size_t s = 0; s < kSums; ++s) {
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 2
        for (size_t v = s * kVectors; v < (s + 1) * kVectors; ++v)
          sum = _mm512_dpbusd_epi32(sum, w.codes[v], _mm512_load_si512(x->codes + 64 * v));
        const __m512i lanes = _mm512_load_si512(kScaleLanes<Type>.lanes[s]);
        __m512& total = totals[r][(s + 1) % 2];
        total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_permutexvar_ps(lanes, scales), total);
      }
    }
  }
};

// Four rows, whose lanes are summed together. (Not an array of rows: GCC would keep that in memory.)
template <class Type, size_t kRows>
void dot(const DecodeWeights& weights, const XUnit* x, size_t units, float* sums, size_t sums_stride) {
  const DecodeWeights w = weights;
  RowWalk<Type, kRows> a(w, 0), b(w, 1), c(w, 2), d(w, 3);
  a.walk(w, x, units);
  b.walk(w, x, units);
  c.walk(w, x, units);
  d.walk(w, x, units);
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r)
    _mm_storeu_ps(sums + r * sums_stride, sum_lanes(a.total(r), b.total(r), c.total(r), d.total(r)));
}

template <class Type>
const DecodeType& type_of() {
  static constexpr DecodeType type{Type::kX, {dot<Type, 1>, dot<Type, 2>, dot<Type, 3>, dot<Type, 4>}};
  return type;
}

}  // namespace

const DecodeType& decode_type(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return type_of<Q4_0Codes>();
    case DType::kQ4_1:
      return type_of<Q4_1Codes>();
    case DType::kQ5_0:
      return type_of<Q5_0Codes>();
    case DType::kQ5_1:
      return type_of<Q5_1Codes>();
    case DType::kQ8_0:
      return type_of<Q8_0Codes>();
    case DType::kQ2_K:
      return type_of<Q2_KCodes>();
    case DType::kQ3_K:
      return type_of<Q3_KCodes>();
    case DType::kQ4_K:
      return type_of<Q4_KCodes>();
    case DType::kQ5_K:
      return type_of<Q5_KCodes>();
    case DType::kQ6_K:
      return type_of<Q6_KCodes>();
    case DType::kIQ4_NL:
      return type_of<IQ4_NLCodes>();
    case DType::kIQ4_XS:
      return type_of<IQ4_XSCodes>();
    case DType::kMXFP4:
      return type_of<MXFP4Codes>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(false, "{} weights are not multiplied with 8 bits", dtype_name(dtype));
}

}  // namespace godwit::cpu
GODWIT_BF16_END
