// Pages of a LatentForm as fp32: coordinates are decoded, multiplied by the basis, and keys turned by RoPE.
#if defined(GODWIT_CPU_PAGE_LATENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_PAGE_LATENT_INL_H_
#undef GODWIT_CPU_PAGE_LATENT_INL_H_
#else
#define GODWIT_CPU_PAGE_LATENT_INL_H_
#endif

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/page_rows-inl.h"
#include "backend/forms/latent.h"
#include "backend/kv_codes.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// to[kept, page_tokens].
inline void read_coordinates(const LatentHalf& at, const std::byte* half, float* to) {
  const FloatTag d;
  for (size_t i = 0; i < at.kept; ++i, to += at.tokens) {
    const std::byte* row = at.row(half, i);
    if (!at.has_code(i)) {
      for (size_t t = 0; t < at.tokens; t += hn::Lanes(d))
        hn::StoreU(load_kv(reinterpret_cast<const F16*>(row) + t), d, to + t);
      continue;
    }
    const int bits = at.bits_of(i);
    const FloatVec top = hn::Set(d, kv_top_level(bits));
    const FloatVec scale = hn::Set(d, f16_to_float(at.scale(half)[i]));
    const FloatVec middle = hn::Set(d, f16_to_float(at.middle(half)[i]));
    for_codes(bits, row, at.tokens, [&](size_t t, FloatVec code) HWY_ATTR {
      hn::StoreU(hn::MulAdd(hn::Sub(code, top), scale, middle), d, to + t);
    });
  }
}

struct ThinProduct {
  const float *a, *b;  // [depth, a_stride], [depth, b_stride]
  size_t depth, a_stride, b_stride;
  float* to;
  size_t to_stride;
};

// kRows rows and kVectors vectors of columns of a^T b.
template <size_t kRows, size_t kVectors>
HWY_INLINE void multiply_block(const ThinProduct& product, size_t row, size_t column) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sum[kRows][kVectors];
  for (auto& line : sum)
    for (FloatVec& x : line) x = hn::Zero(d);
  const float *a = product.a + row, *b = product.b + column;
  for (size_t i = 0; i < product.depth; ++i, a += product.a_stride, b += product.b_stride) {
    FloatVec right[kVectors];
    for (size_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    for (size_t r = 0; r < kRows; ++r) {
      const FloatVec left = hn::Set(d, a[r]);
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r)
    for (size_t v = 0; v < kVectors; ++v)
      hn::StoreU(sum[r][v], d, product.to + (row + r) * product.to_stride + column + v * lanes);
}

// The first `rows` rows of a^T b, and `columns` of its columns, a multiple of 16. Every number is one sum in order of
// i.
inline void multiply_thin(const ThinProduct& product, size_t rows, size_t columns) {
  const size_t lanes = hn::Lanes(FloatTag());
  for (size_t column = 0; column < columns;) {
    const bool two = column + 2 * lanes <= columns;
    size_t row = 0;
    for (; row + 4 <= rows; row += 4)
      two ? multiply_block<4, 2>(product, row, column) : multiply_block<4, 1>(product, row, column);
    for (; row < rows; ++row)
      two ? multiply_block<1, 2>(product, row, column) : multiply_block<1, 1>(product, row, column);
    column += (two ? 2 : 1) * lanes;
  }
}

inline void read_latent_keys(const LatentForm& form, const std::byte* page, float* to) {
  const FloatTag d;
  const size_t tokens = form.page_tokens(), dims = form.head_dim();
  const LatentHalf& half = form.keys();
  HWY_ALIGN float coordinates[LatentForm::kMostDims * LatentForm::kMostTokens];
  read_coordinates(half, form.key_half(page), coordinates);
  multiply_thin({form.k_basis(PageForm::table_of(page)), coordinates, half.kept, dims, tokens, to, tokens}, dims,
                tokens);
  float *cosine = coordinates, *sine = coordinates + LatentForm::kMostDims / 2 * LatentForm::kMostTokens;
  form.turns(page, cosine, sine);
  for (size_t f = 0; f < form.frequencies(); ++f, cosine += tokens, sine += tokens) {
    float *a = to + form.first_of(f) * tokens, *b = to + form.second_of(f) * tokens;
    for (size_t t = 0; t < tokens; t += hn::Lanes(d)) {
      const FloatVec x = hn::LoadU(d, a + t), y = hn::LoadU(d, b + t);
      const FloatVec c = hn::LoadU(d, cosine + t), s = hn::LoadU(d, sine + t);
      hn::StoreU(hn::NegMulAdd(y, s, hn::Mul(x, c)), d, a + t);
      hn::StoreU(hn::MulAdd(x, s, hn::Mul(y, c)), d, b + t);
    }
  }
}

inline void read_latent_values(const LatentForm& form, const std::byte* page, size_t tokens, size_t width, float* to) {
  const size_t dims = form.head_dim();
  const LatentHalf& half = form.values();
  HWY_ALIGN float coordinates[LatentForm::kMostDims * LatentForm::kMostTokens];
  read_coordinates(half, form.value_half(page), coordinates);
  multiply_thin({coordinates, form.v_basis(PageForm::table_of(page)), half.kept, form.page_tokens(), dims, to, width},
                tokens, dims);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
