// Per-target vector functions of the attention kernels: exponential, hyperbolic tangent, loads of stored K and V.
// Lane-wise pure: a value's result does not depend on its neighbours.
#if defined(GODWIT_CPU_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_ATTENTION_MATH_INL_H_
#undef GODWIT_CPU_ATTENTION_MATH_INL_H_
#else
#define GODWIT_CPU_ATTENTION_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// Elements of stored pages.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline constexpr float kExpLowest = -87.3f;  // exp() of less is 0 here; the smallest normal float is exp(-87.34)

struct ExpParts {
  FloatVec scale;     // 2^n
  FloatVec fraction;  // exp(r) - 1, |r| <= ln(2) / 2
};

// x = n ln 2 + r. The polynomial r + r^2 (c0 + ... + c4 r^4) is the minimax one of its form: within 4e-9 of exp(r) - 1.
// Meaningful for kExpLowest <= x <= 88; garbage, but no trap, elsewhere.
HWY_INLINE ExpParts exp_parts(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const FloatVec shift = hn::Set(d, 12582912.0f);
  const FloatVec shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shift);
  const FloatVec n = hn::Sub(shifted, shift);
  FloatVec r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // 9 bits: n times it is exact
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  FloatVec p = hn::Set(d, 0.0013814539415761828f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836874544620514f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166838899254799f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666652113199234f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999999403953552f));
  p = hn::MulAdd(hn::Mul(r, r), p, r);
  const auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  return {hn::BitCast(d, exponent), p};
}

// exp(x) for x <= 0 (and a little above): relative error below 2e-7, exp(0) = 1 exactly, 0 below kExpLowest and at
// -inf, NaN stays NaN.
HWY_INLINE FloatVec exp_nonpositive(FloatVec x) {
  const ExpParts parts = exp_parts(x);
  const auto vanishes = hn::Lt(x, hn::Set(FloatTag(), kExpLowest));
  return hn::IfThenZeroElse(vanishes, hn::MulAdd(parts.scale, parts.fraction, parts.scale));
}

// (e - 1) / (e + 1) with e = exp(2|x|), and e - 1 taken without cancellation: relative error below 1e-6 everywhere.
HWY_INLINE FloatVec tanh_full(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const FloatVec doubled = hn::Min(hn::Mul(hn::Abs(x), two), hn::Set(d, 20.0f));  // tanh(10) rounds to 1
  const ExpParts parts = exp_parts(doubled);
  const FloatVec minus_one = hn::MulAdd(parts.scale, parts.fraction, hn::Sub(parts.scale, one));
  const FloatVec magnitude = hn::Div(minus_one, hn::Add(minus_one, two));
  return hn::IfThenElse(hn::Eq(x, x), hn::CopySignToAbs(magnitude, x), x);
}

HWY_INLINE float exp_nonpositive(float x) {
  return hn::GetLane(exp_nonpositive(hn::Set(FloatTag(), x)));
}

// --- one vector of stored elements as fp32

HWY_INLINE FloatVec load_kv(const float* from) {
  return hn::LoadU(FloatTag(), from);
}

HWY_INLINE FloatVec load_kv(const BF16* from) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Rebind<uint16_t, FloatTag> dh;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, &from->bits))));
}

HWY_INLINE FloatVec load_kv(const F16* from) {
  const FloatTag d;
  const hn::Rebind<uint16_t, FloatTag> dh;
  const auto half = hn::LoadU(dh, &from->bits);
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
  // Without F16C: scale by 2^112, exact for subnormals too; infinity and NaN then get their exponent.
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto special = hn::Gt(hn::BitCast(hn::RebindToSigned<FloatTag>(), magnitude),
                              hn::Set(hn::RebindToSigned<FloatTag>(), (0x7c00 << 13) - 1));
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto infinite = hn::IfThenElseZero(hn::RebindMask(du, special), hn::Set(du, 0x7f800000u));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  return hn::BitCast(d, hn::Or(hn::Or(scaled, infinite), sign));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, half));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
