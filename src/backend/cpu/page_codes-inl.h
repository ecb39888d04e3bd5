// Pages of codes as fp32: what page_layout.h says, a vector at a time.
#if defined(GODWIT_CPU_PAGE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_PAGE_CODES_INL_H_
#undef GODWIT_CPU_PAGE_CODES_INL_H_
#else
#define GODWIT_CPU_PAGE_CODES_INL_H_
#endif

#include <hwy/cache_control.h>

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/attention_work.h"
#include "backend/cpu/page_forms-inl.h"
#include "backend/cpu/page_layout.h"
#include "backend/cpu/page_sparse-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

struct Codes {};  // in place of an element's type: the format says of what kind

using WordVec = hn::Vec<hn::RebindToUnsigned<FloatTag>>;

// Two bytes of codes per lane. Pages lie anywhere: what is `ahead` bytes further, in the next one, is fetched.
HWY_INLINE WordVec load_words(const uint16_t* from, ptrdiff_t ahead) {
  const hn::RebindToUnsigned<FloatTag> du;
  hwy::Prefetch(reinterpret_cast<const char*>(from) + ahead);
  return hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, FloatTag>(), from));
}

// The level of the 8-bit code that starts at bit kShift of a word.
template <int kShift>
HWY_INLINE FloatVec level8(WordVec words) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto magnitude = hn::And(hn::ShiftRight<kShift>(words), hn::Set(du, 127u));
  const auto sign = hn::And(hn::ShiftLeft<24 - kShift>(words), hn::Set(du, 0x80000000u));
  return hn::Or(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<FloatTag>(), magnitude)), hn::BitCast(d, sign));
}

// The level of the code of kBits that starts at bit kShift of a word.
template <int kBits, int kShift>
HWY_INLINE FloatVec level(WordVec words) {
  if constexpr (kBits == 8) {
    return level8<kShift>(words);
  } else {
    const FloatTag d;
    const hn::RebindToUnsigned<FloatTag> du;
    constexpr uint32_t kMask = (1u << kBits) - 1;
    const auto code = hn::And(hn::ShiftRight<kShift>(words), hn::Set(du, kMask));
    return hn::Sub(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<FloatTag>(), code)), hn::Set(d, 0.5f * kMask));
  }
}

// The scales and middles of a page as fp32.
struct PageScales {
  PageScales(const PageHalf& half, const std::byte* page) {
    const auto* from = reinterpret_cast<const F16*>(page + half.offset() + half.code_bytes());
    for (size_t i = 0; i < half.scales(); i += hn::Lanes(FloatTag())) {
      hn::StoreU(load_kv(from + i), FloatTag(), scale + i);
      hn::StoreU(load_kv(from + half.scales() + i), FloatTag(), middle + i);
    }
  }

  float scale[kMaxScales], middle[kMaxScales];
};

// Calls use(field, levels of byte 0, levels of byte 1) for the fields of words; see page_layout.h.
template <int kBits, int kField = 0, class Use>
HWY_INLINE void for_fields(WordVec words, const Use& use) {
  if constexpr (kField < 8 / kBits) {
    use(size_t{kField}, level<kBits, kField * kBits>(words), level<kBits, 8 + kField * kBits>(words));
    for_fields<kBits, kField + 1>(words, use);
  }
}

template <int kBits>
void widen_key_codes(const PageHalf& half, const KvFormat& format, const std::byte* page, ptrdiff_t ahead, float* to) {
  const FloatTag d;
  const auto dims = static_cast<size_t>(format.head_dim), tokens = static_cast<size_t>(format.page_tokens);
  const PageScales scales(half, page);
  const auto* words = reinterpret_cast<const uint16_t*>(page + half.offset());
  constexpr size_t kStep = 2 * 8 / kBits;
  for (size_t dim = 0; dim < dims; dim += kStep, words += tokens, to += kStep * tokens)
    for (size_t t = 0; t < tokens; t += hn::Lanes(d)) {
      const WordVec word = load_words(words + t, ahead);
      if (half.by_dim()) {
        for_fields<kBits>(word, [&](size_t field, FloatVec even, FloatVec odd) HWY_ATTR {
          const size_t i = dim + 2 * field;
          float* line = to + 2 * field * tokens + t;
          hn::StoreU(hn::MulAdd(even, hn::Set(d, scales.scale[i]), hn::Set(d, scales.middle[i])), d, line);
          hn::StoreU(hn::MulAdd(odd, hn::Set(d, scales.scale[i + 1]), hn::Set(d, scales.middle[i + 1])), d,
                     line + tokens);
        });
      } else {
        const FloatVec scale = hn::LoadU(d, scales.scale + t), middle = hn::LoadU(d, scales.middle + t);
        for_fields<kBits>(word, [&](size_t field, FloatVec even, FloatVec odd) HWY_ATTR {
          float* line = to + 2 * field * tokens + t;
          hn::StoreU(hn::MulAdd(even, scale, middle), d, line);
          hn::StoreU(hn::MulAdd(odd, scale, middle), d, line + tokens);
        });
      }
    }
}

template <int kBits>
void widen_value_codes(const PageHalf& half, const KvFormat& format, const std::byte* page, ptrdiff_t ahead,
                       size_t tokens, size_t width, float* to) {
  const FloatTag d;
  const auto dims = static_cast<size_t>(format.head_dim);
  const PageScales scales(half, page);
  const auto* words = reinterpret_cast<const uint16_t*>(page + half.offset());
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kStep = 16 * 8 / kBits;
  for (size_t token = 0; token < tokens; token += 2, to += 2 * width, words += dims * kBits / 8) {
    FloatVec scale[2], middle[2];
    for (size_t i = 0; i < 2; ++i) {
      scale[i] = hn::Set(d, scales.scale[token + i]);
      middle[i] = hn::Set(d, scales.middle[token + i]);
    }
    size_t done = 0;
    for (size_t dim = 0; dim < dims; dim += kStep)
      for (size_t i = 0; i < 16 && dim + i + lanes <= dims; i += lanes) {
        const WordVec word = load_words(words + dim * kBits / 8 + i, ahead);
        for_fields<kBits>(word, [&](size_t field, FloatVec even, FloatVec odd) HWY_ATTR {
          float* line = to + dim + 16 * field + i;
          hn::StoreU(hn::MulAdd(even, scale[0], middle[0]), d, line);
          hn::StoreU(hn::MulAdd(odd, scale[1], middle[1]), d, line + width);
        });
        done = dim + (kBits == 8 ? i + lanes : kStep);
      }
    for (size_t i = 0; i < 2; ++i)
      for (size_t rest = done; rest < width; ++rest)
        to[i * width + rest] = rest < dims ? half.number(page, token + i, rest) : 0.0f;
  }
}

// K of a page as [head_dim, page_tokens].
inline void widen_key_codes(const KvFormat& format, const std::byte* page, ptrdiff_t ahead, float* to) {
  if (format.sealed_form) return read_form_keys(*format.sealed_form, page, to);
  const PageHalf half = PageHalf::keys(format);
  if (half.kept() != 0) return widen_sparse(half, page, half.rows(), half.columns(), to);
  if (half.bits() == 8) return widen_key_codes<8>(half, format, page, ahead, to);
  if (half.bits() == 4) return widen_key_codes<4>(half, format, page, ahead, to);
  widen_key_codes<2>(half, format, page, ahead, to);
}

// V of the first `tokens` slots, rounded up to a pair, as [page_tokens, width]; columns past head_dim become 0.
inline void widen_value_codes(const KvFormat& format, const std::byte* page, ptrdiff_t ahead, size_t tokens,
                              size_t width, float* to) {
  if (format.sealed_form) return read_form_values(*format.sealed_form, page, tokens, width, to);
  const PageHalf half = PageHalf::values(format);
  if (half.kept() != 0) return widen_sparse(half, page, std::min(half.rows(), (tokens + 1) / 2 * 2), width, to);
  if (half.bits() == 8) return widen_value_codes<8>(half, format, page, ahead, tokens, width, to);
  if (half.bits() == 4) return widen_value_codes<4>(half, format, page, ahead, tokens, width, to);
  widen_value_codes<2>(half, format, page, ahead, tokens, width, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
