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
#include "backend/cpu/page_layout.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

struct Codes {};  // in place of an element's type: the format has the bits

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

template <int kShift>
HWY_INLINE FloatVec level4(WordVec words) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto code = hn::And(hn::ShiftRight<kShift>(words), hn::Set(du, 15u));
  return hn::Sub(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<FloatTag>(), code)), hn::Set(d, 7.5f));
}

struct TokenScales {
  TokenScales(const PageHalf& half, const std::byte* page, size_t tokens) {
    const auto* from = reinterpret_cast<const F16*>(page + half.offset() + half.code_bytes());
    for (size_t t = 0; t < tokens; t += hn::Lanes(FloatTag())) {
      hn::StoreU(load_kv(from + t), FloatTag(), scale + t);
      hn::StoreU(load_kv(from + tokens + t), FloatTag(), middle + t);
    }
  }

  float scale[kMaxPageTokens], middle[kMaxPageTokens];
};

// K of a page as [head_dim, page_tokens].
inline void widen_key_codes(const KvFormat& format, const std::byte* page, ptrdiff_t ahead, float* to) {
  const FloatTag d;
  const PageHalf half = PageHalf::keys(format);
  const auto dims = static_cast<size_t>(format.head_dim), tokens = static_cast<size_t>(format.page_tokens);
  const TokenScales scales(half, page, tokens);
  const auto* words = reinterpret_cast<const uint16_t*>(page + half.offset());
  const size_t step = format.k_bits == 8 ? 2 : 4;
  for (size_t dim = 0; dim < dims; dim += step, words += tokens, to += step * tokens)
    for (size_t t = 0; t < tokens; t += hn::Lanes(d)) {
      const WordVec word = load_words(words + t, ahead);
      const FloatVec scale = hn::LoadU(d, scales.scale + t), middle = hn::LoadU(d, scales.middle + t);
      if (step == 2) {
        hn::StoreU(hn::MulAdd(level8<0>(word), scale, middle), d, to + t);
        hn::StoreU(hn::MulAdd(level8<8>(word), scale, middle), d, to + tokens + t);
      } else {
        hn::StoreU(hn::MulAdd(level4<0>(word), scale, middle), d, to + t);
        hn::StoreU(hn::MulAdd(level4<8>(word), scale, middle), d, to + tokens + t);
        hn::StoreU(hn::MulAdd(level4<4>(word), scale, middle), d, to + 2 * tokens + t);
        hn::StoreU(hn::MulAdd(level4<12>(word), scale, middle), d, to + 3 * tokens + t);
      }
    }
}

// V of the first `tokens` slots, rounded up to a pair, as [page_tokens, width]; columns past head_dim become 0.
inline void widen_value_codes(const KvFormat& format, const std::byte* page, ptrdiff_t ahead, size_t tokens,
                              size_t width, float* to) {
  const FloatTag d;
  const PageHalf half = PageHalf::values(format);
  const auto dims = static_cast<size_t>(format.head_dim);
  const TokenScales scales(half, page, static_cast<size_t>(format.page_tokens));
  const auto* words = reinterpret_cast<const uint16_t*>(page + half.offset());
  const size_t lanes = hn::Lanes(d);
  for (size_t token = 0; token < tokens; token += 2, to += 2 * width) {
    FloatVec scale[2], middle[2];
    for (size_t i = 0; i < 2; ++i) {
      scale[i] = hn::Set(d, scales.scale[token + i]);
      middle[i] = hn::Set(d, scales.middle[token + i]);
    }
    size_t dim = 0;
    if (format.v_bits == 8) {
      for (; dim + lanes <= dims; dim += lanes) {
        const WordVec word = load_words(words + dim, ahead);
        hn::StoreU(hn::MulAdd(level8<0>(word), scale[0], middle[0]), d, to + dim);
        hn::StoreU(hn::MulAdd(level8<8>(word), scale[1], middle[1]), d, to + width + dim);
      }
      words += dims;
    } else {
      for (; dim < dims; dim += 32, words += 16)
        for (size_t i = 0; i < 16; i += lanes) {
          const WordVec word = load_words(words + i, ahead);
          float* line = to + dim + i;
          hn::StoreU(hn::MulAdd(level4<0>(word), scale[0], middle[0]), d, line);
          hn::StoreU(hn::MulAdd(level4<4>(word), scale[0], middle[0]), d, line + 16);
          hn::StoreU(hn::MulAdd(level4<8>(word), scale[1], middle[1]), d, line + width);
          hn::StoreU(hn::MulAdd(level4<12>(word), scale[1], middle[1]), d, line + width + 16);
        }
    }
    for (size_t i = 0; i < 2; ++i)
      for (size_t rest = dim; rest < width; ++rest)
        to[i * width + rest] = rest < dims ? half.number(page, token + i, rest) : 0.0f;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
