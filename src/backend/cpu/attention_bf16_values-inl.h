// The second product of Bf16Walk (attention_bf16_walk-inl.h): from weights of values to outputs.
// Included by attention_bf16.cpp alone, after the walk.
#pragma once

// What `values` weigh for `count` queries, whose weights start at `from` of the strip.
template <class T, class Engine>
void Bf16Walk<T, Engine>::multiply_values(const uint16_t* values, size_t from, size_t count, size_t tokens) {
  Product product{weights_ + from * at_.slots, at_.slots, values,   at_.slots,
                  round_up(tokens, 32),        at_.width, weighed_, at_.weighed_stride};
  engine_.multiply(product, count, ahead_);
  if constexpr (kCodes) {
    waiting_rank_ = rank_;
    waiting_sides_ = value_sides_.b;
    if (rank_ == 0) return;
    product.b = value_sides_.factors;
    product.columns = kSides;
    product.c = weighed_ + at_.width;
    engine_.multiply(product, count, ahead_);
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::accumulate(State& state) {
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const __m512 correction = _mm512_set1_ps(waiting_correction_[i]);
    float* out = state.out + (waiting_.begin + i) * at_.width;
    const float* weighed = weighed_ + i * at_.weighed_stride;
    for (size_t j = 0; j < at_.width; j += 16) {
      __m512 sum = _mm512_load_ps(weighed + j);
      for (size_t r = 0; kCodes && r < waiting_rank_; ++r)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(weighed[at_.width + r]),
                              _mm512_load_ps(waiting_sides_ + r * at_.width + j), sum);
      _mm512_storeu_ps(out + j, _mm512_fmadd_ps(_mm512_loadu_ps(out + j), correction, sum));
    }
  }
  waiting_ = {};
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::add_row_by_row(Strip strip, size_t tokens, State& state) {
  for (size_t query = strip.begin; query < strip.end;) {
    const size_t row = query / group_, end = std::min(strip.end, (row + 1) * group_), from = query - strip.begin;
    multiply_values(blanked_for(row_bits_ + row * (at_.columns / 16), tokens), from, end - query, tokens);
    waiting_ = {query, end};
    std::copy_n(correction_ + from, waiting_.size(), waiting_correction_);
    accumulate(state);
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
