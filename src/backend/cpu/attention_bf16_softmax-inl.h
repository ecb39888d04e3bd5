// The softmax of Bf16Walk (attention_bf16_walk-inl.h): from products of queries and keys to weights of values.
// Included by attention_bf16.cpp alone, after the walk.
#pragma once

// 16 scores of a query's products, which begin at `scores`.
template <class T, class Engine>
template <typename Bf16Walk<T, Engine>::Scores kKind>
HWY_INLINE __m512 Bf16Walk<T, Engine>::score_at(const float* scores, size_t t, __m512 q_sum) const {
  __m512 s = _mm512_load_ps(scores + t);
  if constexpr (kKind == Scores::kScaled)
    return _mm512_fmadd_ps(s, _mm512_load_ps(key_scale_ + t), _mm512_mul_ps(_mm512_load_ps(key_middle_ + t), q_sum));
  for (size_t r = 0; kKind == Scores::kRanked && r < rank_; ++r)
    s = _mm512_fmadd_ps(_mm512_set1_ps(scores[at_.slots + r]), _mm512_load_ps(key_sides_.b + r * at_.columns + t), s);
  return s;
}

template <class T, class Engine>
template <typename Bf16Walk<T, Engine>::Scores kKind>
void Bf16Walk<T, Engine>::bias_and_cap(Strip strip, size_t tokens, const float* bias) {
  const __m512 cap = _mm512_set1_ps(args_.softcap);
  const __m512 inverse = _mm512_set1_ps(args_.softcap > 0 ? 1.0f / args_.softcap : 0.0f);
  for (size_t i = 0; i < strip.size(); ++i) {
    float* scores = scores_ + i * at_.score_stride;
    const __m512 q_sum = _mm512_set1_ps(kKind == Scores::kScaled ? q_sums_[strip.begin + i] : 0.0f);
    for (size_t t = 0; t < tokens; t += 16) {
      __m512 s = score_at<kKind>(scores, t, q_sum);
      if (args_.softcap > 0) s = _mm512_mul_ps(cap, tanh_full(_mm512_mul_ps(s, inverse)));
      if (bias != nullptr) s = _mm512_add_ps(s, _mm512_loadu_ps(bias + t));
      _mm512_store_ps(scores + t, s);
    }
  }
}

// Products become scores; unseen slots get the score -inf; then new maxima, and the correction of
// what was summed before.
template <class T, class Engine>
template <typename Bf16Walk<T, Engine>::Scores kKind>
void Bf16Walk<T, Engine>::find_maxima(Strip strip, size_t tokens, const uint16_t* row_bits, State& state) {
  const __m512 never = _mm512_set1_ps(kMinusInfinity), one = _mm512_set1_ps(1.0f);
  for (size_t begin = 0; begin < strip.size(); begin += 16) {
    const size_t count = std::min<size_t>(16, strip.size() - begin);
    __m512 tops[16];
    for (size_t i = 0; i < count; ++i) {
      float* scores = scores_ + (begin + i) * at_.score_stride;
      const __m512 q_sum = _mm512_set1_ps(kKind == Scores::kScaled ? q_sums_[strip.begin + begin + i] : 0.0f);
      __m512 top = never;
      if (row_bits == nullptr) {
        for (size_t t = 0; t < tokens; t += 16) {
          const __m512 s = score_at<kKind>(scores, t, q_sum);
          if (kKind != Scores::kPlain) _mm512_store_ps(scores + t, s);
          top = _mm512_max_ps(top, s);
        }
      } else {
        const uint16_t* bits = row_bits + (strip.begin + begin + i) / group_ * (at_.columns / 16);
        for (size_t t = 0; t < tokens; t += 16) {
          const __m512 s = _mm512_mask_blend_ps(bits[t / 16], never, score_at<kKind>(scores, t, q_sum));
          _mm512_store_ps(scores + t, s);
          top = _mm512_max_ps(top, s);
        }
      }
      tops[i] = top;
    }
    for (size_t i = count; i < 16; ++i) tops[i] = never;
    const __m512 page = lane_maxima(tops);
    float* maxima = state.max + strip.begin + begin;
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    const __m512 old = _mm512_mask_loadu_ps(never, mask, maxima);
    const __mmask16 rises = _mm512_cmp_ps_mask(page, old, _CMP_GT_OQ);
    const __m512 max = _mm512_mask_blend_ps(rises, old, page);
    _mm512_mask_storeu_ps(maxima, mask, max);
    _mm512_store_ps(correction_ + begin, _mm512_mask_blend_ps(rises, one, exp_nonpositive(_mm512_sub_ps(old, max))));
    // Without any finite score the reference is 0: weights are then 0, or NaN where a score is NaN.
    const __mmask16 some = _mm512_cmp_ps_mask(max, never, _CMP_NEQ_UQ);
    _mm512_store_ps(reference_ + begin, _mm512_maskz_mul_ps(some, max, _mm512_set1_ps(kLog2E)));
  }
}

template <class T, class Engine>
template <typename Bf16Walk<T, Engine>::Scores kKind>
void Bf16Walk<T, Engine>::finish_scores(Strip strip, size_t tokens, const float* bias, const uint16_t* row_bits,
                                        State& state) {
  if (args_.softcap <= 0 && bias == nullptr) return find_maxima<kKind>(strip, tokens, row_bits, state);
  bias_and_cap<kKind>(strip, tokens, bias);
  find_maxima<Scores::kPlain>(strip, tokens, row_bits, state);
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::finish_strip(Strip strip, size_t tokens, const float* bias, const uint16_t* row_bits,
                                       State& state) {
  if (score_kind_ == Scores::kPlain) return finish_scores<Scores::kPlain>(strip, tokens, bias, row_bits, state);
  if constexpr (kCodes) {
    if (score_kind_ == Scores::kScaled)
      finish_scores<Scores::kScaled>(strip, tokens, bias, row_bits, state);
    else
      finish_scores<Scores::kRanked>(strip, tokens, bias, row_bits, state);
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::weigh(Strip strip, size_t from, size_t to, size_t tokens, const uint16_t* row_bits,
                                const State& state) {
  if constexpr (kCodes) {
    if (scaled_values_) return weigh_values<true>(strip, from, to, tokens, row_bits, state);
  }
  weigh_values<false>(strip, from, to, tokens, row_bits, state);
}

// Scores of queries [from, to) of the strip become weights in their place, if kScaled times the scales of values, and
// zeros up to a whole number of pairs of vectors. Meanwhile, outputs are fetched.
template <class T, class Engine>
template <bool kScaled>
HWY_INLINE void Bf16Walk<T, Engine>::weigh_values(Strip strip, size_t from, size_t to, size_t tokens,
                                                  const uint16_t* row_bits, const State& state) {
  const auto ones = (__m512bh)_mm512_set1_epi16(kBf16One);
  const __m512 log2e = _mm512_set1_ps(kLog2E);
  for (size_t i = from; i < to; ++i) {
    const float* scores = scores_ + i * at_.score_stride;
    uint16_t* weights = weights_ + i * at_.weight_stride;
    const uint16_t* bits = row_bits == nullptr ? nullptr : row_bits + (strip.begin + i) / group_ * (at_.columns / 16);
    const __m512 reference = _mm512_set1_ps(reference_[i]);
    const float* out = state.out + (strip.begin + i) * at_.width;  // which comes next
    for (size_t j = 0; j < at_.width; j += 16) _mm_prefetch(reinterpret_cast<const char*>(out + j), _MM_HINT_T0);
    __m512 sum = _mm512_setzero_ps(), middles = _mm512_setzero_ps();
    for (size_t t = 0; t < tokens; t += 32) {
      __m512 p[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      for (size_t j = 0; j < 2 && t + 16 * j < tokens; ++j) {
        const size_t at = t + 16 * j;
        p[j] = exp2_nonpositive(_mm512_fmsub_ps(_mm512_load_ps(scores + at), log2e, reference));
        if constexpr (kScaled) {
          const __mmask16 seen = bits == nullptr ? 0xffff : bits[at / 16];
          sum = _mm512_add_ps(sum, p[j]);
          middles = _mm512_mask3_fmadd_ps(p[j], _mm512_load_ps(value_middle_ + at), middles, seen);
          p[j] = _mm512_maskz_mul_ps(seen, p[j], _mm512_load_ps(value_scale_ + at));
        }
      }
      const __m512i both = to_bf16(p[0], p[1]);
      _mm512_store_si512(weights + t, both);
      if constexpr (!kScaled) sum = _mm512_dpbf16_ps(sum, (__m512bh)both, ones);
    }
    const __m512 correction = _mm512_set1_ps(correction_[i]);
    float* lane_sums = lane_sums_ + (strip.begin + i) * 16;
    _mm512_store_ps(lane_sums, _mm512_fmadd_ps(_mm512_load_ps(lane_sums), correction, sum));
    if constexpr (kCodes) {
      float* lane_middles = lane_middles_ + (strip.begin + i) * 16;
      _mm512_store_ps(lane_middles, _mm512_fmadd_ps(_mm512_load_ps(lane_middles), correction, middles));
    }
  }
}
