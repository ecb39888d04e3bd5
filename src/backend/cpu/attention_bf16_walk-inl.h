// The walk of attention_walk-inl.h with bf16 operands: an online softmax over the pages of a segment, in strips of
// queries that stay in the first cache.
//
// Rounded to bf16: queries (after scaling), keys and values (unless stored so), weights. Scores, maxima, sums and
// outputs are fp32; sums are of the rounded weights, so that the weights in use add up to one.
//
// A product cannot leave out the slots that a query does not see; it multiplies them by zero. So that nothing comes of
// what they hold, slots past a page's count are blanked, and where a page that some query sees in part holds an
// infinity or NaN, every row gets values of its own with the unseen ones blanked. Zeros then add nothing, except that
// they may turn -0 into +0, which AttentionDrive therefore does to every result.
//
// Of codes the levels are the operands, exact in bf16, and scales and middles are applied to sums:
//   score   sum over d of q[d] (middle[t] + scale[t] level[t, d]) = scale[t] (q . level[t]) + middle[t] (sum of q)
//   output  sum over t of p[t] (middle[t] + scale[t] level[t, d]) = (p scale) . level[., d] + p . middle
// with p scale rounded to bf16 in place of the weights. Levels are always finite: what a row does not see is kept out
// by leaving out its scale and middle. Open pages, keys whose scales are of dimensions and pages with a form of their
// own are numbers in bf16. To those of attention_bf16_pack_gear-inl.h a product of thin matrices belongs, which is
// applied to sums, too.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

inline constexpr short kBf16One = 0x3f80;
inline constexpr uint16_t kBf16Nan = 0x7fc0;

template <class T, class Engine>
class Bf16Walk {
 public:
  // Converting a page then costs a few percent of its use, and a chunk of 512 rows makes blocks of the same size that
  // begin where pages of 64 tokens do.
  static constexpr int kBlockQueries = 256;

  static size_t width(const AttentionShape& shape) { return round_up(static_cast<size_t>(shape.head_dim), 16); }
  static size_t scratch_floats(const AttentionShape& shape, size_t queries) { return Layout(shape, queries).floats; }
  static void fold(State& total, const State& segment);

  // `scratch` holds scratch_floats() and outlives the walk.
  Bf16Walk(const AttentionArgs& args, const AttentionShape& shape, const QueryBlock& block, float* scratch);

  float* spare() const { return spare_; }  // room for two states
  // The state over pages [begin, end) of the plan, which belong to one segment. `then` is what will be read after them.
  void segment(uint32_t begin, uint32_t end, State& state, const PageRef* then);

 private:
  static constexpr size_t kStrip = Engine::kStrip;
  static constexpr bool kCodes = std::is_same_v<T, Codes>;
  static constexpr size_t kMostRank = kCodes ? GearForm::kMostRank : 0;
  static constexpr size_t kSides = kCodes ? GearSides::kColumns : 0;  // columns of products for sums with factors

  // What products of queries and keys need to be scores: nothing, scale and middle of a token, or key_sides_.
  enum class Scores : uint8_t { kPlain, kScaled, kRanked };

  // Products that rebuild pages have more rows than there may be queries.
  static bool rebuilds(const KvFormat& format) {
    return kCodes && format.sealed_form != nullptr && format.sealed_form->kind() == PageForm::Kind::kLatent;
  }
  static size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

  // Sizes in elements; all buffers are whole cache lines.
  struct Layout {
    Layout(const AttentionShape& shape, size_t queries)
        : depth(round_up(static_cast<size_t>(shape.head_dim), 32)),
          columns(static_cast<size_t>(shape.page_tokens)),
          slots(round_up(columns, 32)),
          width(Bf16Walk::width(shape)),
          score_stride(slots + kSides),
          weight_stride(2 * score_stride),
          strip(round_up(kStrip, 16)),
          keys(depth * columns / 2),
          values(slots * width / 2),
          q(round_up(queries, kStrip) * depth / 2 + 16 * depth / 2),
          scores(strip * score_stride),
          bits(round_up(queries * columns / 16, 32) / 2),
          sums(round_up(queries, 16)),
          scales(kCodes ? 4 * slots + 2 * depth : 0),
          factors(kSides * (depth + slots) / 2),
          sides(kCodes ? kMostRank * (depth + slots + columns + 2 * width) + 2 * 16 : 0),
          opened(kCodes ? static_cast<size_t>(shape.head_dim) * static_cast<size_t>(shape.page_tokens) : 0),
          floats(keys + 2 * values + q + 3 * scores + strip * (width + kSides) + 2 * 64 + sums * 16 + bits + scales +
                 factors + sides + round_up(opened, 16) + (kCodes ? keys + sums * 17 : 0) +
                 2 * State::floats(queries, width)) {}

    size_t depth, columns, slots, width, score_stride, weight_stride, strip;
    size_t keys, values, q, scores, bits, sums, scales, factors, sides, opened, floats;  // floats' worth
  };

  struct Rows {  // of the block, that see something of a page
    int begin = 0, end = 0;
  };

  struct Strip {  // of queries
    size_t begin = 0, end = 0;
    size_t size() const { return end - begin; }
  };

  PositionSpan span(int row) const { return {positions_[row], args_.window}; }
  void visit(const PageRef& ref, State& state);
  Rows mark_visible(const PageView& page, size_t& tokens);
  void mark(uint16_t* bits, SlotRange range) const;
  bool pack(const PageView& page, Visibility seen, size_t tokens);
  void pack_key_codes(const std::byte* page, size_t tokens);
  void pack_value_codes(const std::byte* page, size_t tokens);
  bool pack_form(const std::byte* page, size_t tokens);
  void pack_gear_page(const GearForm& form, const std::byte* page, size_t tokens);
  void pack_sorted_page(const SortedForm& form, const std::byte* page, size_t tokens);
  void pack_lost(const PageForm& form, const std::byte* page, size_t tokens);
  bool pack_keys_directly(const PageForm& form, const std::byte* page);
  void pack_values_directly(const PageForm& form, const std::byte* page);
  void rebuild(const LatentHalf& at, const std::byte* half, const uint16_t* columns);
  void pack_late(const std::byte* page, size_t tokens);
  size_t value_lines(size_t tokens) const { return std::min(at_.columns, round_up(tokens, 32)); }
  void fill_slot(uint16_t* values, size_t slot, uint16_t number) const;
  void score(Strip strip, size_t tokens, float* scores);
  template <Scores kKind>
  __m512 score_at(const float* scores, size_t t, __m512 q_sum) const;
  template <Scores kKind>
  void bias_and_cap(Strip strip, size_t tokens, const float* bias);
  template <Scores kKind>
  void find_maxima(Strip strip, size_t tokens, const uint16_t* row_bits, State& state);
  template <Scores kKind>
  void finish_scores(Strip strip, size_t tokens, const float* bias, const uint16_t* row_bits, State& state);
  void weigh(Strip strip, size_t from, size_t to, size_t tokens, const uint16_t* row_bits, const State& state);
  template <bool kScaled>
  void weigh_values(Strip strip, size_t from, size_t to, size_t tokens, const uint16_t* row_bits, const State& state);
  void finish_strip(Strip strip, size_t tokens, const float* bias, const uint16_t* row_bits, State& state);
  Product score_product(Strip strip, size_t tokens, float* scores) const;
  Product value_product(const float* scores, const uint16_t* values, size_t tokens, float* out) const;
  bool mixes(Strip queries, size_t tokens) const;
  void mix_strips(Strip queries, const float* bias, const uint16_t* row_bits, State& state);
  template <bool kScaled, size_t kRow>
  void mix_rows(Strip strip, const uint16_t* row_bits, State& state, const Product& scores, const Product& values);
  void correct(Strip strip, State& state) const;
  void add_values(const uint16_t* values, Strip queries, size_t from, size_t tokens, State& state);
  void add_waiting(State& state);
  void add_row_by_row(Strip strip, size_t tokens, State& state);
  const uint16_t* blanked_for(const uint16_t* bits, size_t tokens);

  const AttentionArgs& args_;
  const AttentionShape& shape_;
  const int rows_;
  const size_t group_, queries_;
  const Layout at_;
  const int32_t* positions_;  // [rows]
  int32_t lowest_, highest_;
  Ahead ahead_;  // the next page

  uint16_t* keys_;      // operand [depth, columns]
  uint16_t* values_;    // operand [slots, width]
  uint16_t* blanked_;   // likewise
  uint16_t* q_;         // [queries, depth], scaled
  float* scores_;       // of the strip at hand, [strip, slots + kSides]
  float* next_scores_;  // of the strip that comes next
  float* last_scores_;  // of the one before, if its outputs have yet to receive what it weighs
  uint16_t* weights_;   // in the place of scores_, [strip, weight_stride]
  float* reference_;    // [strip], what is subtracted from scores, times log2(e)
  float* correction_;   // [strip], for what was summed before
  float* copied_;       // [strip, width], outputs of a strip that is not whole
  float* lane_sums_;    // [queries, 16]
  float* key_scale_;    // of codes, [slots]; so are the next three
  float* key_middle_;
  float* value_scale_;
  float* value_middle_;
  float* dim_scale_;  // [depth]
  float* dim_middle_;
  float* q_sums_;        // [queries]
  float* lane_middles_;  // [queries, 16], sums of weight times middle
  Scores score_kind_ = Scores::kPlain;
  bool late_ = false;           // pack_late() is to be called
  bool scaled_values_ = false;  // weights are to be multiplied by value_scale_
  size_t rank_ = 0;             // of the product that belongs to the page
  Strip waiting_;               // queries (none: empty) whose outputs have yet to receive ...
  float* waiting_sums_;         // ... these, [strip, kSides], times ...
  const float* waiting_sides_ = nullptr;
  size_t waiting_rank_ = 0;  // ... these, [rank, width]
  GearSides key_sides_, value_sides_;
  float* spare_sides_;     // value_sides_.b of the page before
  float* read_;            // K or V of a page that has a form of its own, or ...
  uint16_t* kept_;         // ... what a sparse page keeps of them
  uint16_t* coordinates_;  // of a LatentForm's page, operand [depth, columns]
  uint16_t* row_bits_;     // [rows, columns / 16], which slots a row sees
  float* spare_;
  Engine engine_;
};

template <class T, class Engine>
Bf16Walk<T, Engine>::Bf16Walk(const AttentionArgs& args, const AttentionShape& shape, const QueryBlock& block,
                              float* scratch)
    : args_(args),
      shape_(shape),
      rows_(block.row_end - block.row_begin),
      group_(static_cast<size_t>(shape.group)),
      queries_(static_cast<size_t>(rows_) * group_),
      at_(shape, queries_),
      positions_(reinterpret_cast<const int32_t*>(args.positions.data) + block.row_begin),
      engine_(rebuilds(args.format) ? 16 : queries_) {
  lowest_ = *std::min_element(positions_, positions_ + rows_);
  highest_ = *std::max_element(positions_, positions_ + rows_);
  float* next = scratch;
  auto take = [&next](size_t floats) { return std::exchange(next, next + floats); };
  keys_ = reinterpret_cast<uint16_t*>(take(at_.keys));
  values_ = reinterpret_cast<uint16_t*>(take(at_.values));
  blanked_ = reinterpret_cast<uint16_t*>(take(at_.values));
  q_ = reinterpret_cast<uint16_t*>(take(at_.q));
  scores_ = take(at_.scores);
  next_scores_ = take(at_.scores);
  last_scores_ = take(at_.scores);
  weights_ = reinterpret_cast<uint16_t*>(scores_);
  copied_ = take(at_.strip * at_.width);
  reference_ = take(64);
  correction_ = take(64);
  lane_sums_ = take(at_.sums * 16);
  if constexpr (kCodes) {
    waiting_sums_ = take(at_.strip * kSides);
    for (float** each : {&key_scale_, &key_middle_, &value_scale_, &value_middle_}) *each = take(at_.slots);
    for (float** each : {&dim_scale_, &dim_middle_}) *each = take(at_.depth);
    q_sums_ = take(at_.sums);
    lane_middles_ = take(at_.sums * 16);
    float* factors = take(at_.factors);
    std::fill_n(factors, at_.factors, 0.0f);
    key_sides_.factors = reinterpret_cast<uint16_t*>(factors);
    value_sides_.factors = key_sides_.factors + kSides * at_.depth;
    key_sides_.a = take(kMostRank * at_.depth + 16);
    value_sides_.a = take(kMostRank * at_.slots + 16);
    key_sides_.b = take(kMostRank * at_.columns);
    for (float** each : {&value_sides_.b, &spare_sides_}) *each = take(kMostRank * at_.width);
    read_ = take(round_up(at_.opened, 16));
    kept_ = reinterpret_cast<uint16_t*>(read_);
    coordinates_ = reinterpret_cast<uint16_t*>(take(at_.keys));
  }
  row_bits_ = reinterpret_cast<uint16_t*>(take(at_.bits));
  spare_ = next;

  const auto head_dim = static_cast<size_t>(shape.head_dim), depth = at_.depth;
  if constexpr (kCodes) {
    std::fill_n(keys_, 2 * at_.keys, uint16_t{0});      // rows past head_dim stay so, and
    std::fill_n(values_, 2 * at_.values, uint16_t{0});  // ... those past page_tokens
  }
  if (depth > head_dim) std::fill_n(q_, queries_ * depth, uint16_t{0});
  const __m512 scale = _mm512_set1_ps(args.scale);
  for (size_t query = 0; query < queries_; ++query) {
    const size_t row = static_cast<size_t>(block.row_begin) + query / group_;
    const size_t head = static_cast<size_t>(block.kv_head) * group_ + query % group_;
    const auto* from = reinterpret_cast<const float*>(args.q.data + row * args.q.row_stride_bytes) + head * head_dim;
    for (size_t i = 0; i < head_dim; i += 16) {
      const auto mask = static_cast<__mmask16>(head_dim - i < 16 ? 0xff : 0xffff);
      const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from + i), scale);
      _mm256_store_si256(reinterpret_cast<__m256i*>(q_ + query * depth + i), (__m256i)_mm512_cvtneps_pbh(scaled));
    }
    if constexpr (kCodes) {
      __m512 sum = _mm512_setzero_ps();
      for (size_t i = 0; i < depth; i += 32)
        sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_load_si512(q_ + query * depth + i),
                               (__m512bh)_mm512_set1_epi16(kBf16One));
      q_sums_[query] = _mm512_reduce_add_ps(sum);
    }
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::segment(uint32_t begin, uint32_t end, State& state, const PageRef* then) {
  state.clear();
  std::fill_n(lane_sums_, queries_ * 16, 0.0f);
  if constexpr (kCodes) std::fill_n(lane_middles_, queries_ * 16, 0.0f);
  const auto& pages = args_.plan->pages;
  for (uint32_t page = begin; page < end; ++page) {
    ahead_ = {.wakes_tiles = Engine::kSleeps};
    if (const PageRef* next = page + 1 < end ? &pages[page + 1] : then; next != nullptr) {
      ahead_.at = reinterpret_cast<const char*>(args_.page(*next));
      ahead_.end = ahead_.at + args_.format.page_bytes(next->page);
    }
    visit(pages[page], state);
  }
  add_waiting(state);
  for (size_t i = 0; i < queries_; ++i) state.sum[i] = _mm512_reduce_add_ps(_mm512_load_ps(lane_sums_ + i * 16));
  if constexpr (kCodes) {
    for (size_t i = 0; i < queries_; ++i) {
      const __m512 middle = _mm512_set1_ps(_mm512_reduce_add_ps(_mm512_load_ps(lane_middles_ + i * 16)));
      float* out = state.out + i * at_.width;
      for (size_t j = 0; j < at_.width; j += 16)
        _mm512_storeu_ps(out + j, _mm512_add_ps(_mm512_loadu_ps(out + j), middle));
    }
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::mark(uint16_t* bits, SlotRange range) const {
  for (int i = 0; i < static_cast<int>(at_.columns / 16); ++i) {
    const int begin = std::clamp(range.begin - 16 * i, 0, 16), end = std::clamp(range.end - 16 * i, 0, 16);
    bits[i] = static_cast<uint16_t>(bits[i] | ((1u << end) - (1u << begin)));
  }
}

// Fills row_bits_; `tokens` becomes the end of the last slot that a row sees.
template <class T, class Engine>
typename Bf16Walk<T, Engine>::Rows Bf16Walk<T, Engine>::mark_visible(const PageView& page, size_t& tokens) {
  Rows rows{rows_, 0};
  int last_end = 0;
  const size_t words = at_.columns / 16;
  std::fill_n(row_bits_, static_cast<size_t>(rows_) * words, uint16_t{0});
  for (int row = 0; row < rows_; ++row) {
    uint16_t* bits = row_bits_ + static_cast<size_t>(row) * words;
    for (SlotRange run = visible_run(page, 0, span(row)); !run.empty(); run = visible_run(page, run.end, span(row))) {
      mark(bits, run);
      rows.begin = std::min(rows.begin, row);
      rows.end = row + 1;
      last_end = std::max(last_end, run.end);
    }
  }
  tokens = static_cast<size_t>(last_end);
  return rows;
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::visit(const PageRef& ref, State& state) {
  const PageView page(args_, ref);
  const Visibility seen = visibility(page, lowest_, highest_, args_.window);
  if (seen == Visibility::kNone) return;
  auto tokens = static_cast<size_t>(page.count);
  Rows rows{0, rows_};
  const bool partly = seen == Visibility::kSome || tokens % 16 != 0;  // masks are needed
  if (partly) {
    rows = mark_visible(page, tokens);
    if (rows.begin >= rows.end) return;
  }
  const bool finite = pack(page, seen, tokens);
  const uint16_t* row_bits = partly ? row_bits_ : nullptr;
  // Vectors and tiles can work at the same time if neither has to wait for the other: the strip that comes next is
  // scored amid the softmax of this one, and what this one weighs is added to its outputs amid the softmax of the next.
  const Strip queries{static_cast<size_t>(rows.begin) * group_, static_cast<size_t>(rows.end) * group_};
  Strip strip{queries.begin, std::min(queries.begin + kStrip, queries.end)};
  score(strip, tokens, scores_);
  if constexpr (kCodes) {
    if (late_) pack_late(page.k, tokens);
  }
  if constexpr (Engine::kMixes) {
    if (finite && mixes(queries, tokens)) return mix_strips(queries, page.bias, row_bits, state);
  }
  while (strip.begin < queries.end) {
    const Strip next{strip.end, std::min(strip.end + kStrip, queries.end)};
    const size_t half = strip.size() / 2;
    finish_strip(strip, tokens, page.bias, row_bits, state);
    weigh(strip, 0, half, tokens, row_bits, state);
    if (next.begin < queries.end) score(next, tokens, next_scores_);
    weigh(strip, half, strip.size(), tokens, row_bits, state);
    add_waiting(state);
    correct(strip, state);
    finite ? add_values(values_, strip, 0, tokens, state) : add_row_by_row(strip, tokens, state);
    std::swap(scores_, next_scores_);
    weights_ = reinterpret_cast<uint16_t*>(scores_);
    strip = next;
  }
}

template <class T, class Engine>
Product Bf16Walk<T, Engine>::score_product(Strip strip, size_t tokens, float* scores) const {
  return {q_ + strip.begin * at_.depth, at_.depth, keys_,           at_.depth, at_.depth,
          round_up(tokens, 16),         scores,    at_.score_stride};
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::score(Strip strip, size_t tokens, float* scores) {
  Product product = score_product(strip, tokens, scores);
  engine_.multiply(product, strip.size(), ahead_);
  if constexpr (kCodes) {
    if (rank_ == 0) return;
    product.b = key_sides_.factors;
    product.columns = kSides;
    product.c = scores + at_.slots;
    engine_.multiply(product, strip.size(), ahead_);
  }
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::fold(State& total, const State& segment) {
  for (size_t i = 0; i < total.queries; ++i) {
    if (segment.sum[i] == 0) continue;
    float* into = total.out + i * total.width;
    const float* from = segment.out + i * total.width;
    if (total.sum[i] == 0) {
      std::copy_n(from, total.width, into);
      total.max[i] = segment.max[i];
      total.sum[i] = segment.sum[i];
      continue;
    }
    const float top = std::max(total.max[i], segment.max[i]);
    const __m512 a = exp_nonpositive(_mm512_set1_ps(total.max[i] - top));
    const __m512 b = exp_nonpositive(_mm512_set1_ps(segment.max[i] - top));
    for (size_t j = 0; j < total.width; j += 16)
      _mm512_storeu_ps(into + j,
                       _mm512_fmadd_ps(_mm512_loadu_ps(from + j), b, _mm512_mul_ps(_mm512_loadu_ps(into + j), a)));
    total.max[i] = top;
    total.sum[i] = total.sum[i] * _mm512_cvtss_f32(a) + segment.sum[i] * _mm512_cvtss_f32(b);
  }
}
