// Operations on rows of activations. Exponentials and tanh are Highway's or as near (at most 4 units in the last
// place), square roots are exact, and so are divisions but for those by 1 + e^-z in AVX-512 (likewise). An element's or
// row's bits depend on that element or row alone: the last, partial vector goes through the same vector code, padded
// with zeros.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementwise.cpp"
#include <cmath>
#include <cstring>

// The first of these includes this file again and must come before what is compiled per target.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "backend/cpu/dispatch.h"
#include "backend/cpu/elementwise_rows.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/strips.h"
#include "tensor/quant.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

HWY_INLINE Vec load_part(const float* from, int64_t count) {
  alignas(64) float padded[kLanes] = {};
  std::memcpy(padded, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(Tag(), padded);
}

HWY_INLINE void store_part(Vec value, float* to, int64_t count) {
  alignas(64) float padded[kLanes];
  hn::Store(value, Tag(), padded);
  std::memcpy(to, padded, static_cast<size_t>(count) * sizeof(float));
}

// out[i] = fn(a[i], b[i]); out may be a or b.
template <class Fn>
HWY_INLINE void map2(const float* a, const float* b, float* out, int64_t count, const Fn& fn) {
  const Tag d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(fn(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  if (i < count) store_part(fn(load_part(a + i, count - i), load_part(b + i, count - i)), out + i, count - i);
}

// x / (1 + e^-z). Beyond 88 the exponential would overflow; the quotient is below 1e-36 there.
#if HWY_TARGET == HWY_AVX3
constexpr float kExp2[] = {0.69314700365f, 0.24022242427f, 0.05550733581f, 0.00967151299f, 0.00132647215f};
// In half the instructions of Exp() and Div(): 2^t = 2^n 2^r with a polynomial that is exact at 0, |r| <= 1/2, and a
// reciprocal of 14 bits that one step of Newton's takes to 27.
HWY_INLINE Vec sigmoid_times(Vec x, Vec z) {
  const __m512 t =
      _mm512_max_ps(_mm512_set1_ps(-125.0f),
                    _mm512_min_ps(_mm512_set1_ps(126.9f), _mm512_mul_ps(z.raw, _mm512_set1_ps(-1.442695041f))));
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(t, n);
  const __m512 one = _mm512_set1_ps(1.0f);
  __m512 p = _mm512_set1_ps(kExp2[4]);
  for (int i = 3; i >= 0; --i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExp2[i]));
  p = _mm512_fmadd_ps(p, r, one);
  const __m512 whole = _mm512_add_ps(one, _mm512_scalef_ps(p, n)), near = _mm512_rcp14_ps(whole);
  const __m512 inverse = _mm512_fmadd_ps(near, _mm512_fnmadd_ps(whole, near, one), near);
  return Vec{_mm512_mul_ps(x.raw, inverse)};
}
#else
HWY_INLINE Vec sigmoid_times(Vec x, Vec z) {
  const Tag d;
  const Vec e = hn::Exp(d, hn::Min(hn::Neg(z), hn::Set(d, 88.0f)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), e));
}
#endif

struct Silu {
  HWY_INLINE Vec operator()(Vec gate, Vec up) const { return hn::Mul(sigmoid_times(gate, gate), up); }
};

// x / 2 * (1 + tanh(u)) = x * sigmoid(2u), which loses nothing to cancellation for negative u.
struct GeluTanh {
  HWY_INLINE Vec operator()(Vec gate, Vec up) const {
    const Tag d;
    const Vec cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(gate, gate)), gate, gate);
    const Vec twice_u = hn::Mul(hn::Set(d, 1.5957691216057308f), cubic);  // 2 * sqrt(2 / pi)
    return hn::Mul(sigmoid_times(gate, twice_u), up);
  }
};

struct Sum {
  HWY_INLINE Vec operator()(Vec a, Vec b) const { return hn::Add(a, b); }
};

struct Softcap {
  float cap;
  HWY_INLINE Vec operator()(Vec x, Vec) const {
    const Tag d;
    const Vec bound = hn::Set(d, cap);
    return hn::Mul(bound, hn::Tanh(d, hn::Div(x, bound)));
  }
};

template <class Fn>
void map_rows(Context& context, const Tensor& a, const Tensor& b, const Tensor& out, const Fn& fn) {
  for_spans(context, out.rows(), out.row_elements(), [&](int64_t row, int64_t begin, int64_t end) HWY_ATTR {
    map2(row_of(a, row) + begin, row_of(b, row) + begin, row_of(out, row) + begin, end - begin, fn);
  });
}

void gated(Context& context, Activation kind, Tensor gate, Tensor up, Tensor out) {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  switch (kind) {
    case Activation::kSilu:
      return map_rows(context, gate, up, out, Silu());
    case Activation::kGeluTanh:
      return map_rows(context, gate, up, out, GeluTanh());
  }
}

template <class Fn>
void gated_span(const float* gate, const float* up, float* out, int64_t count) {
  map2(gate, up, out, count, Fn());
}

GatedRow gated_row(Activation kind) {
  return kind == Activation::kSilu ? gated_span<Silu> : gated_span<GeluTanh>;
}

void add(Context& context, Tensor x, Tensor y) {
  check_same_shape(x, y);
  map_rows(context, x, y, x, Sum());
}

void softcap(Context& context, Tensor x, float cap) {
  check_f32(x);
  map_rows(context, x, x, x, Softcap{cap});
}

void embed(Context& context, Tensor tokens, Tensor table, float scale, Tensor out) {
  check_embed(tokens, table, out);
  const auto* ids = reinterpret_cast<const int32_t*>(tokens.data);
  const auto dim = static_cast<size_t>(table.shape[1]);
  for_rows(context, out.rows(), out.row_elements(), [&](int64_t row) {
    float* to = row_of(out, row);
    if (table.packed)
      dequantize_strip_row(table, ids[row], to);
    else
      dequantize(table.dtype, row_of<const std::byte>(table, ids[row]), to, dim);
    if (scale != 1)
      for (size_t i = 0; i < dim; ++i) to[i] *= scale;
  });
}

void gather_rows(Context& context, Tensor x, Tensor rows, Tensor out) {
  check_gather_rows(x, rows, out);
  const auto* ids = reinterpret_cast<const int32_t*>(rows.data);
  const size_t bytes = static_cast<size_t>(x.row_elements()) * sizeof(float);
  for_rows(context, out.rows(), out.row_elements(),
           [&](int64_t row) { std::memcpy(row_of(out, row), row_of(x, ids[row]), bytes); });
}

void normalize(const float* x, const float* weight, float eps, float* out, int64_t dim) {
  const Tag d;
  Vec squares = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const Vec v = hn::LoadU(d, x + i);
    squares = hn::MulAdd(v, v, squares);
  }
  if (i < dim) {
    const Vec v = load_part(x + i, dim - i);
    squares = hn::MulAdd(v, v, squares);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(dim);
  const Vec scale = hn::Set(d, 1.0f / std::sqrt(mean + eps));
  map2(x, weight, out, dim, [scale](Vec v, Vec w) HWY_ATTR { return hn::Mul(hn::Mul(v, scale), w); });
}

void rms_norm(Context& context, Tensor x, Tensor weight, float eps, Tensor out) {
  check_rms_norm(x, weight, out);
  const auto* w = reinterpret_cast<const float*>(weight.data);
  const int64_t dim = weight.shape[0];
  for_rows(context, x.rows(), x.row_elements(), [&](int64_t row) {
    for (int64_t i = 0; i < x.row_elements(); i += dim)
      normalize(row_of(x, row) + i, w, eps, row_of(out, row) + i, dim);
  });
}

// Rotates `half` pairs (x[i], x[i + half]).
void rotate_halves(float* x, const float* cosines, const float* sines, int64_t half) {
  const Tag d;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Vec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const Vec c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

// Rotates `half` pairs (x[2i], x[2i + 1]).
void rotate_pairs(float* x, const float* cosines, const float* sines, int64_t half) {
  const Tag d;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    Vec a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const Vec c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreInterleaved2(hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)), d, x + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void rope(Context& context, const RopeArgs& args) {
  check_rope(args);
  const int64_t heads = args.x.shape[1], head_dim = args.x.shape[2], half = args.inv_freq.shape[0];
  const size_t table_bytes = static_cast<size_t>(2 * half) * sizeof(float);
  // A sine costs as much as a few dozen rotations, hence the larger weight of a row.
  const int64_t cost = heads * head_dim + 16 * half;
  auto rotate = args.style == RopeStyle::kHalves ? rotate_halves : rotate_pairs;
  const int64_t per_task = std::max<int64_t>(1, kTaskElements / cost);
  context.pool.parallel_for((args.x.rows() + per_task - 1) / per_task, [&](int64_t task, int thread) {
    auto* cosines = reinterpret_cast<float*>(context.scratch(thread, table_bytes));
    for (int64_t row = task * per_task; row < std::min(args.x.rows(), (task + 1) * per_task); ++row) {
      rope_table(args, row, cosines, cosines + half);
      for (int64_t head = 0; head < heads; ++head)
        rotate(row_of(args.x, row) + head * head_dim, cosines, cosines + half, half);
    }
  });
}

void combine_experts(Context& context, Tensor x, Tensor weights, Tensor out) {
  check_combine_experts(x, weights, out);
  const int64_t count = weights.shape[1], dim = out.row_elements();
  for_rows(context, out.rows(), count * dim, [&](int64_t row) HWY_ATTR {
    float* to = row_of(out, row);
    std::memset(to, 0, static_cast<size_t>(dim) * sizeof(float));
    for (int64_t j = 0; j < count; ++j) {
      const Vec scale = hn::Set(Tag(), row_of(weights, row)[j]);
      map2(row_of(x, row * count + j), to, to, dim,
           [scale](Vec v, Vec sum) HWY_ATTR { return hn::MulAdd(scale, v, sum); });
    }
  });
}

}  // namespace

void fill_elementwise(Kernels& table) {
  table.embed = embed;
  table.gather_rows = gather_rows;
  table.rms_norm = rms_norm;
  table.rope = rope;
  table.gated = gated;
  table.gated_row = gated_row;
  table.add = add;
  table.softcap = softcap;
  table.combine_experts = combine_experts;
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {
HWY_EXPORT(fill_elementwise);
void fill_elementwise(Kernels& table, int64_t target) {
  GODWIT_DISPATCH(fill_elementwise, target)(table);
}
}  // namespace godwit::cpu
#endif
