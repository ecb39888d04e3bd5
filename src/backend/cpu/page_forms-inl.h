// Pages of each PageForm as fp32, a vector at a time; what they hold stands in backend/forms/.
#if defined(GODWIT_CPU_PAGE_FORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_PAGE_FORMS_INL_H_
#undef GODWIT_CPU_PAGE_FORMS_INL_H_
#else
#define GODWIT_CPU_PAGE_FORMS_INL_H_
#endif

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/page_latent-inl.h"
#include "backend/cpu/page_rows-inl.h"
#include "backend/forms/gear.h"
#include "backend/forms/product.h"
#include "backend/forms/sorted.h"
#include "backend/forms/thin.h"
#include "backend/kv_codes.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// --- SortedForm

// 2^exponent for 16 or fewer exponents.
HWY_INLINE FloatVec powers(const int8_t* exponents) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto e = hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, FloatTag>(), exponents));
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127))));
}

inline void read_sorted_keys(const SortedForm& form, const std::byte* page, float* to) {
  const FloatTag d;
  const size_t tokens = form.page_tokens(), row_bytes = code_row_bytes(form.k_bits(), tokens);
  const uint8_t* order = form.order(page);
  const FloatVec top = hn::Set(d, SortedForm::top(form.k_bits()));
  for (size_t i = 0; i < form.head_dim(); ++i) {
    const int8_t* exponents = form.k_exponents(page) + i / SortedForm::kBlock * tokens;
    float* line = to + order[i] * tokens;
    for_codes(form.k_bits(), form.k_codes(page) + i * row_bytes, tokens, [&](size_t t, FloatVec code) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::Sub(code, top), powers(exponents + t)), d, line + t);
    });
  }
}

inline void read_sorted_values(const SortedForm& form, const std::byte* page, size_t tokens, size_t width, float* to) {
  const FloatTag d;
  const size_t dims = form.head_dim(), row_bytes = code_row_bytes(form.v_bits(), dims);
  const size_t blocks = dims / SortedForm::kBlock;
  const FloatVec top = hn::Set(d, SortedForm::top(form.v_bits()));
  for (size_t token = 0; token < tokens; ++token, to += width) {
    const int8_t* exponents = form.v_exponents(page) + token * blocks;
    for_codes(form.v_bits(), form.v_codes(page) + token * row_bytes, dims, [&](size_t dim, FloatVec code) HWY_ATTR {
      const auto bits = static_cast<uint32_t>(exponents[dim / SortedForm::kBlock] + 127) << 23;
      const FloatVec power = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<FloatTag>(), bits));
      hn::StoreU(hn::Mul(hn::Sub(code, top), power), d, to + dim);
    });
  }
}

// --- ThinForm

inline void read_thin_keys(const ThinForm& form, const std::byte* page, float* to) {
  const FloatTag d;
  const size_t tokens = form.page_tokens();
  const auto* from = reinterpret_cast<const F16*>(form.k_numbers(page));
  for (size_t dim = 0; dim < form.head_dim(); ++dim, to += tokens) {
    const bool keeps = form.keeps(page, dim);
    for (size_t t = 0; t < tokens; t += hn::Lanes(d)) hn::StoreU(keeps ? load_kv(from + t) : hn::Zero(d), d, to + t);
    if (keeps) from += tokens;
  }
}

inline void read_thin_values(const ThinForm& form, const std::byte* page, size_t tokens, size_t width, float* to) {
  const size_t dims = form.head_dim();
  const auto* from = reinterpret_cast<const F16*>(form.v_numbers(page));
  for (size_t token = 0; token < tokens; ++token, from += dims, to += width)
    for (size_t dim = 0; dim < dims; dim += hn::Lanes(FloatTag()))
      hn::StoreU(load_kv(from + dim), FloatTag(), to + dim);
}

// --- GearForm

// The first `vectors` of a half, each as a line of `stride` floats.
inline void read_gear(const GearHalf& at, const std::byte* half, size_t vectors, size_t stride, float* to) {
  const FloatTag d;
  float b[GearForm::kMostRank][256];
  for (size_t r = 0; r < at.rank; ++r)
    for (size_t i = 0; i < at.length; i += hn::Lanes(d))
      hn::StoreU(load_kv(reinterpret_cast<const F16*>(at.b(half, r)) + i), d, b[r] + i);
  const FloatVec top = hn::Set(d, kv_top_level(at.bits));
  for (size_t vector = 0; vector < vectors; ++vector, to += stride) {
    const FloatVec scale = hn::Set(d, f16_to_float(at.scale(half)[vector]));
    const FloatVec middle = hn::Set(d, f16_to_float(at.middle(half)[vector]));
    float a[GearForm::kMostRank];
    for (size_t r = 0; r < at.rank; ++r) a[r] = f16_to_float(at.a(half, r)[vector]);
    for_codes(at.bits, at.codes(half, vector), at.length, [&](size_t i, FloatVec code) HWY_ATTR {
      FloatVec number = hn::MulAdd(hn::Sub(code, top), scale, middle);
      for (size_t r = 0; r < at.rank; ++r) number = hn::MulAdd(hn::Set(d, a[r]), hn::LoadU(d, b[r] + i), number);
      hn::StoreU(number, d, to + i);
    });
    for (size_t e = 0; e < 2 * at.extremes; ++e)
      to[at.place(half, vector)[e]] = f16_to_float(at.extreme(half, vector)[e]);
  }
}

// --- ProductForm

// Numbers of one dimension of the centroids, `stride` floats from lane to lane further, that indices ask for.
HWY_INLINE FloatVec look_up(const float* book, const uint8_t* indices, size_t stride) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto index = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), indices));
  const auto lane = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
  return hn::GatherIndex(d, book, hn::Add(index, lane));
}

inline void read_product_keys(const ProductForm& form, const std::byte* page, float* to) {
  const FloatTag d;
  const size_t tokens = form.page_tokens();
  const float* book = form.k_book(PageForm::table_of(page));
  for (size_t dim = 0; dim < form.head_dim(); ++dim, to += tokens, book += ProductForm::kCentroids) {
    const uint8_t* indices = form.k_index(page) + dim % form.groups() * tokens;
    for (size_t t = 0; t < tokens; t += hn::Lanes(d)) hn::StoreU(look_up(book, indices + t, 0), d, to + t);
  }
}

inline void read_product_values(const ProductForm& form, const std::byte* page, size_t tokens, size_t width,
                                float* to) {
  const FloatTag d;
  const size_t dims = form.head_dim(), groups = form.groups();
  const float* book = form.v_book(PageForm::table_of(page));
  for (size_t token = 0; token < tokens; ++token, to += width)
    for (size_t dim = 0; dim < dims; dim += hn::Lanes(d)) {
      const uint8_t* indices = form.v_index(page) + token * groups + dim % groups;
      hn::StoreU(look_up(book + dim * ProductForm::kCentroids, indices, ProductForm::kCentroids), d, to + dim);
    }
}

// --- all of them; FormReaders of page_forms.h

inline void read_form_keys(const PageForm& form, const std::byte* page, float* to) {
  switch (form.kind()) {
    case PageForm::Kind::kSorted:
      return read_sorted_keys(static_cast<const SortedForm&>(form), page, to);
    case PageForm::Kind::kThin:
      return read_thin_keys(static_cast<const ThinForm&>(form), page, to);
    case PageForm::Kind::kProduct:
      return read_product_keys(static_cast<const ProductForm&>(form), page, to);
    case PageForm::Kind::kGear: {
      const GearHalf& half = static_cast<const GearForm&>(form).keys();
      return read_gear(half, page + form.head_bytes(), half.vectors, half.length, to);
    }
    case PageForm::Kind::kLatent:
      return read_latent_keys(static_cast<const LatentForm&>(form), page, to);
  }
}

inline void read_form_values(const PageForm& form, const std::byte* page, size_t tokens, size_t width, float* to) {
  switch (form.kind()) {
    case PageForm::Kind::kSorted:
      read_sorted_values(static_cast<const SortedForm&>(form), page, tokens, width, to);
      break;
    case PageForm::Kind::kThin:
      read_thin_values(static_cast<const ThinForm&>(form), page, tokens, width, to);
      break;
    case PageForm::Kind::kProduct:
      read_product_values(static_cast<const ProductForm&>(form), page, tokens, width, to);
      break;
    case PageForm::Kind::kGear:
      read_gear(static_cast<const GearForm&>(form).values(), page + form.k_bytes(), tokens, width, to);
      break;
    case PageForm::Kind::kLatent:
      read_latent_values(static_cast<const LatentForm&>(form), page, tokens, width, to);
      break;
  }
  const size_t dims = form.head_dim();
  for (size_t token = 0; width > dims && token < tokens; ++token)
    std::fill_n(to + token * width + dims, width - dims, 0.0f);
  if (!form.any_lost(page)) return;
  for (size_t token = 0; token < tokens; ++token)
    if (form.is_lost(page, token)) std::fill_n(to + token * width, dims, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
