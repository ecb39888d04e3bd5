// The second product of Bf16Walk (attention_bf16_walk-inl.h): from weights of values to outputs.
// Included by attention_bf16.cpp alone, after the walk.
#pragma once

// Corrects what was added to the outputs of the strip at hand before. Where the maximum has not risen, which is nearly
// everywhere in a long text, there is nothing to do.
template <class T, class Engine>
void Bf16Walk<T, Engine>::correct(Strip strip, State& state) const {
  float* out = state.out + strip.begin * at_.width;
  for (size_t i = 0; i < strip.size(); i += 16) {
    const __m512 corrections = _mm512_load_ps(correction_ + i);
    uint32_t rises =
        _mm512_mask_cmp_ps_mask(first_floats(strip.size() - i), corrections, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ);
    for (; rises != 0; rises &= rises - 1) {
      const size_t row = i + static_cast<size_t>(std::countr_zero(rises));
      const __m512 correction = _mm512_set1_ps(correction_[row]);
      for (float* at = out + row * at_.width; at < out + (row + 1) * at_.width; at += 16)
        _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), correction));
    }
  }
}

// `scores` have become weights in their place.
template <class T, class Engine>
Product Bf16Walk<T, Engine>::value_product(const float* scores, const uint16_t* values, size_t tokens,
                                           float* out) const {
  return {reinterpret_cast<const uint16_t*>(scores),
          at_.weight_stride,
          values,
          at_.slots,
          round_up(tokens, 32),
          at_.width,
          out,
          at_.width,
          true};
}

// Adds what `values` weigh to the outputs of queries of the strip, of which they are number `from` and on.
template <class T, class Engine>
void Bf16Walk<T, Engine>::add_values(const uint16_t* values, Strip queries, size_t from, size_t tokens, State& state) {
  float* out = state.out + queries.begin * at_.width;
  // Products read and write whole tiles of rows.
  const bool whole = queries.size() % engine_.rows_together() == 0;
  if (!whole) std::copy_n(out, queries.size() * at_.width, copied_);
  Product product = value_product(scores_ + from * at_.score_stride, values, tokens, whole ? out : copied_);
  engine_.multiply(product, queries.size(), ahead_);
  if (!whole) std::copy_n(copied_, queries.size() * at_.width, out);
  if constexpr (kCodes) {
    if (rank_ == 0) return;
    product.b = value_sides_.factors;
    product.columns = product.c_stride = kSides;
    product.c = waiting_sums_;
    product.adds = false;
    engine_.multiply(product, queries.size(), ahead_);
    waiting_ = queries;
    waiting_rank_ = rank_;
    waiting_sides_ = value_sides_.b;
  }
}

// Whether the queries are whole strips of a whole page, more of them than there is to begin and end with. Of heads of
// 128, whose products take twice as long beside the same softmax, mixing was 5% slower.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::mixes(Strip queries, size_t tokens) const {
  return rank_ == 0 && tokens == 64 && at_.slots == 64 && at_.depth == 64 && at_.width == 64 &&
         queries.size() % 16 == 0 && queries.size() >= 64;
}

// All strips of a page, the first of which is scored.
template <class T, class Engine>
void Bf16Walk<T, Engine>::mix_strips(Strip queries, const float* bias, const uint16_t* row_bits, State& state) {
  add_waiting(state);
  Product values;
  for (Strip strip{queries.begin, queries.begin + 16}; strip.begin < queries.end; strip = {strip.end, strip.end + 16}) {
    const bool first = strip.begin == queries.begin, last = strip.end == queries.end;
    finish_strip(strip, 64, bias, row_bits, state);
    correct(strip, state);
    const Product scores = score_product({strip.end, strip.end + 16}, 64, next_scores_);
    if (first || last) {
      if (!last) engine_.multiply(scores, 16, ahead_);
      weigh(strip, 0, 16, 64, row_bits, state);
      if (!first) engine_.multiply(values, 16, ahead_);
    } else if (scaled_values_) {
      if constexpr (kCodes) mix_rows<true, 0>(strip, row_bits, state, scores, values);
    } else {
      mix_rows<false, 0>(strip, row_bits, state, scores, values);
    }
    values = value_product(scores_, values_, 64, state.out + strip.begin * at_.width);
    last_scores_ = std::exchange(scores_, std::exchange(next_scores_, last_scores_));
    weights_ = reinterpret_cast<uint16_t*>(scores_);
  }
  engine_.multiply(values, 16, ahead_);
}

// Weights of rows from kRow on, amid the products that are scores of the next strip and outputs of the last one.
template <class T, class Engine>
template <bool kScaled, size_t kRow>
HWY_INLINE void Bf16Walk<T, Engine>::mix_rows(Strip strip, const uint16_t* row_bits, State& state,
                                              const Product& scores, const Product& values) {
  static_assert(2 * Engine::kSteps == Engine::kStrip);
  if constexpr (kRow == Engine::kStrip) {
    engine_.end(values);
  } else {
    ahead_.fetch(8);
    if constexpr (kRow == Engine::kSteps) engine_.end(scores);
    engine_.template step<kRow % Engine::kSteps>(kRow < Engine::kSteps ? scores : values);
    weigh_values<kScaled>(strip, kRow, kRow + 1, 64, row_bits, state);
    mix_rows<kScaled, kRow + 1>(strip, row_bits, state, scores, values);
  }
}

// What sums with factors add.
template <class T, class Engine>
void Bf16Walk<T, Engine>::add_waiting(State& state) {
  if constexpr (kCodes) {
    for (size_t i = 0; i < waiting_.size(); ++i) {
      float* out = state.out + (waiting_.begin + i) * at_.width;
      for (size_t j = 0; j < at_.width; j += 16) {
        __m512 sum = _mm512_load_ps(out + j);
        for (size_t r = 0; r < waiting_rank_; ++r)
          sum = _mm512_fmadd_ps(_mm512_set1_ps(waiting_sums_[i * kSides + r]),
                                _mm512_load_ps(waiting_sides_ + r * at_.width + j), sum);
        _mm512_store_ps(out + j, sum);
      }
    }
    waiting_ = {};
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::add_row_by_row(Strip strip, size_t tokens, State& state) {
  for (size_t query = strip.begin; query < strip.end;) {
    const size_t row = query / group_, end = std::min(strip.end, (row + 1) * group_);
    add_values(blanked_for(row_bits_ + row * (at_.columns / 16), tokens), {query, end}, query - strip.begin, tokens,
               state);
    add_waiting(state);
    query = end;
  }
}

// The page's values with zeros in the slots outside `bits`.
template <class T, class Engine>
const uint16_t* Bf16Walk<T, Engine>::blanked_for(const uint16_t* bits, size_t tokens) {
  std::copy_n(values_, 2 * at_.values, blanked_);
  for (size_t slot = 0; slot < tokens; ++slot) {
    if ((bits[slot / 16] >> slot % 16 & 1) == 0) fill_slot(blanked_, slot, 0);
  }
  return blanked_;
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::fill_slot(uint16_t* values, size_t slot, uint16_t number) const {
  for (size_t column = 0; column < at_.width; ++column)
    values[column / 16 * at_.slots * 16 + slot / 2 * 32 + column % 16 * 2 + slot % 2] = number;
}
