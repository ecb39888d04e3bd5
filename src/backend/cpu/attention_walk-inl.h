// The walk of one block of queries over its pages: an online softmax (Milakov and Gimelshein, 2018; FlashAttention, Dao
// et al., 2022) whose running maximum starts anew at each segment.
//
// Per page and query: scores, page maximum, new maximum m, weights exp(s - m), lane-wise sums, output rescaled and
// weighted values added in slot order. Invisible slots are neither added nor multiplied, so what they hold (a later
// token's infinity, the NaN of unwritten memory) cannot reach a result; a page without visible slots changes nothing.
#if defined(GODWIT_CPU_ATTENTION_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_ATTENTION_WALK_INL_H_
#undef GODWIT_CPU_ATTENTION_WALK_INL_H_
#else
#define GODWIT_CPU_ATTENTION_WALK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/cpu/attention_drive.h"
#include "backend/cpu/attention_tile-inl.h"
#include "backend/cpu/page_codes-inl.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

// total := total and segment together.
inline void fold(State& total, const State& segment) {
  const FloatTag d;
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
    const float a = exp_nonpositive(total.max[i] - top), b = exp_nonpositive(segment.max[i] - top);
    const FloatVec va = hn::Set(d, a), vb = hn::Set(d, b);
    for (size_t j = 0; j < total.width; j += kLanes)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, from + j), vb, hn::Mul(hn::LoadU(d, into + j), va)), d, into + j);
    total.max[i] = top;
    total.sum[i] = total.sum[i] * a + segment.sum[i] * b;
  }
}

inline float to_float(float value) {
  return value;
}
inline float to_float(F16 value) {
  return f16_to_float(value.bits);
}
inline float to_float(BF16 value) {
  return bf16_to_float(value.bits);
}

template <class T>
class Walk {
 public:
  // Divides evenly into the micro-kernels' rows, and large enough that converting a page to fp32 costs a few percent.
  static constexpr int kBlockQueries = 96;
  static_assert(kBlockQueries % kMaxRows == 0);

  static size_t width(const AttentionShape& shape) {
    return (static_cast<size_t>(shape.head_dim) + kLanes - 1) / kLanes * kLanes;
  }
  static void fold(State& total, const State& segment) { HWY_NAMESPACE::fold(total, segment); }
  static size_t scratch_floats(const AttentionShape& shape, size_t queries) {
    const auto head_dim = static_cast<size_t>(shape.head_dim), tokens = static_cast<size_t>(shape.page_tokens);
    return queries * (head_dim + tokens + kLanes + 1) + tokens * (head_dim + width(shape)) +
           2 * State::floats(queries, width(shape)) + 8 * kLanes;
  }

  // `scratch` holds scratch_floats() and outlives the walk.
  Walk(const AttentionArgs& args, const AttentionShape& shape, const QueryBlock& block, float* scratch);

  size_t queries() const { return queries_; }
  float* spare() const { return spare_; }  // room for two states
  // The state over pages [begin, end) of the plan, which belong to one segment. `then` is what will be read after them.
  void segment(uint32_t begin, uint32_t end, State& state, const PageRef* then);

 private:
  struct Rows {  // of the block, that see something of a page
    int begin = 0, end = 0;
  };

  void visit(const PageRef& ref, State& state);
  Rows rows_with_a_view(const PageView& page, size_t& tokens) const;
  void add_bias_and_cap(float* scores, size_t tokens, const float* bias) const;
  void mask(float* scores, size_t tokens, const PageView& page, SlotRange range, const PositionSpan* span) const;
  void weigh(size_t query, size_t tokens, State& state);
  void add_values(const PageView& page, Visibility seen, Rows rows, State& state);
  const float* widen_keys(const PageView& page) const;
  const float* widen_values(const PageView& page) const;
  template <class Stored>
  void widen_keys(const Stored* k) const;
  template <class Stored>
  void widen_values(const Stored* v, size_t tokens) const;

  static constexpr bool kCodes = std::is_same_v<T, Codes>;
  // A few queries convert K and V as they read; many, and all of codes, convert the page once.
  static bool widens(int queries) { return kCodes || (!std::is_same_v<T, float> && queries > kMaxRows); }

  PositionSpan span(int row) const { return {positions_[row], args_.window}; }

  const AttentionArgs& args_;
  const AttentionShape& shape_;
  const int rows_;
  const size_t queries_, head_dim_, page_tokens_, width_;
  const int32_t* positions_;  // [rows]
  int32_t lowest_, highest_;
  ptrdiff_t ahead_ = 0;  // bytes from the page at hand to the next
  float* keys_;          // [head_dim, page_tokens]
  float* values_;        // [page_tokens, width]
  float* q_;             // [queries, head_dim], scaled
  float* scores_;        // [queries, page_tokens], then weights
  float* lane_sums_;     // [queries, lanes]
  float* correction_;    // [queries]
  float* spare_;
};

template <class T>
Walk<T>::Walk(const AttentionArgs& args, const AttentionShape& shape, const QueryBlock& block, float* scratch)
    : args_(args),
      shape_(shape),
      rows_(block.row_end - block.row_begin),
      queries_(static_cast<size_t>(rows_) * static_cast<size_t>(shape.group)),
      head_dim_(static_cast<size_t>(shape.head_dim)),
      page_tokens_(static_cast<size_t>(shape.page_tokens)),
      width_(width(shape)),
      positions_(reinterpret_cast<const int32_t*>(args.positions.data) + block.row_begin) {
  lowest_ = *std::min_element(positions_, positions_ + rows_);
  highest_ = *std::max_element(positions_, positions_ + rows_);
  keys_ = scratch;
  values_ = keys_ + head_dim_ * page_tokens_;
  scores_ = values_ + page_tokens_ * width_;
  lane_sums_ = scores_ + queries_ * page_tokens_;
  q_ = lane_sums_ + queries_ * kLanes;
  correction_ = q_ + queries_ * head_dim_;
  spare_ = correction_ + (queries_ + kLanes - 1) / kLanes * kLanes;

  const size_t row_floats = static_cast<size_t>(shape.group) * head_dim_;
  for (int row = 0; row < rows_; ++row) {
    const auto* from = reinterpret_cast<const float*>(args.q.data + static_cast<size_t>(block.row_begin + row) *
                                                                        args.q.row_stride_bytes) +
                       static_cast<size_t>(block.kv_head) * row_floats;
    float* to = q_ + static_cast<size_t>(row) * row_floats;
    for (size_t i = 0; i < row_floats; ++i) to[i] = from[i] * args.scale;
  }
}

template <class T>
void Walk<T>::segment(uint32_t begin, uint32_t end, State& state, const PageRef* then) {
  const FloatTag d;
  state.clear();
  std::fill_n(lane_sums_, queries_ * kLanes, 0.0f);
  const auto& pages = args_.plan->pages;
  for (uint32_t page = begin; page < end; ++page) {
    const PageRef* next = page + 1 < end ? &pages[page + 1] : then;
    ahead_ = next == nullptr ? 0
                             : reinterpret_cast<const char*>(args_.page(*next)) -
                                   reinterpret_cast<const char*>(args_.page(pages[page]));
    visit(pages[page], state);
  }
  for (size_t i = 0; i < queries_; ++i)
    state.sum[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, lane_sums_ + i * kLanes)));
}

template <class T>
typename Walk<T>::Rows Walk<T>::rows_with_a_view(const PageView& page, size_t& tokens) const {
  Rows rows{rows_, 0};
  int last_end = 0;
  for (int row = 0; row < rows_; ++row) {
    const SlotRange run = visible_run(page, 0, span(row));
    if (run.empty()) continue;
    rows.begin = std::min(rows.begin, row);
    rows.end = row + 1;
    last_end = std::max(last_end, run.end);
  }
  tokens = static_cast<size_t>(page.positions == nullptr ? last_end : page.count);
  return rows;
}

template <class T>
void Walk<T>::visit(const PageRef& ref, State& state) {
  const PageView page(args_, ref);
  const Visibility seen = visibility(page, lowest_, highest_, args_.window);
  if (seen == Visibility::kNone) return;
  auto tokens = static_cast<size_t>(page.count);
  Rows rows{0, rows_};
  if (seen == Visibility::kSome) {
    rows = rows_with_a_view(page, tokens);
    if (rows.begin >= rows.end) return;
  }
  const auto group = static_cast<size_t>(shape_.group);
  const size_t begin = static_cast<size_t>(rows.begin) * group, end = static_cast<size_t>(rows.end) * group;
  const ScoreBlock block{q_ + begin * head_dim_, head_dim_, page_tokens_, scores_ + begin * page_tokens_, ahead_};
  const auto count = static_cast<int>(end - begin);
  if (widens(count)) {
    score_page(block, widen_keys(page), count, tokens);
  } else if constexpr (!kCodes) {
    score_page(block, reinterpret_cast<const T*>(page.k), count, tokens);
  }

  const bool whole_vectors = tokens % kLanes == 0;
  for (int row = rows.begin; row < rows.end; ++row) {
    const PositionSpan sees = span(row);
    SlotRange range{0, page.count};
    const bool holes = seen == Visibility::kSome && page.positions != nullptr;
    if (seen == Visibility::kSome && !holes) range = visible_run(page, 0, sees);
    for (size_t query = static_cast<size_t>(row) * group; query < static_cast<size_t>(row + 1) * group; ++query) {
      float* scores = scores_ + query * page_tokens_;
      if (args_.softcap > 0 || page.bias != nullptr) add_bias_and_cap(scores, tokens, page.bias);
      if (seen == Visibility::kSome || !whole_vectors) mask(scores, tokens, page, range, holes ? &sees : nullptr);
      weigh(query, tokens, state);
    }
  }
  add_values(page, seen, rows, state);
}

template <class T>
void Walk<T>::add_bias_and_cap(float* scores, size_t tokens, const float* bias) const {
  const FloatTag d;
  const FloatVec cap = hn::Set(d, args_.softcap), inverse = hn::Set(d, args_.softcap > 0 ? 1.0f / args_.softcap : 0.0f);
  for (size_t t = 0; t < tokens; t += kLanes) {
    FloatVec s = hn::LoadU(d, scores + t);
    if (args_.softcap > 0) s = hn::Mul(cap, tanh_full(hn::Mul(s, inverse)));
    if (bias != nullptr) s = hn::Add(s, hn::LoadU(d, bias + t));
    hn::StoreU(s, d, scores + t);
  }
}

// Slots outside `range`, and with explicit positions those outside `span`, get the score -inf.
template <class T>
void Walk<T>::mask(float* scores, size_t tokens, const PageView& page, SlotRange range,
                   const PositionSpan* span) const {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto first = hn::Set(di, range.begin - 1), end = hn::Set(di, range.end);
  const FloatVec never = hn::Set(d, kMinusInfinity);
  for (size_t t = 0; t < tokens; t += kLanes) {
    const auto slot = hn::Iota(di, static_cast<int32_t>(t));
    auto keep = hn::And(hn::Gt(slot, first), hn::Lt(slot, end));
    if (span != nullptr) {
      const auto position = hn::LoadU(di, page.positions + t);
      const auto too_new = hn::Gt(position, hn::Set(di, span->newest));
      const auto too_old = hn::Lt(position, hn::Set(di, span->oldest));
      keep = hn::AndNot(hn::Or(too_new, too_old), keep);
    }
    hn::StoreU(hn::IfThenElse(hn::RebindMask(d, keep), hn::LoadU(d, scores + t), never), d, scores + t);
  }
}

// Scores become weights; maximum, sums and the correction of what was summed before follow.
template <class T>
HWY_INLINE void Walk<T>::weigh(size_t query, size_t tokens, State& state) {
  const FloatTag d;
  float* HWY_RESTRICT scores = scores_ + query * page_tokens_;
  FloatVec top = hn::LoadU(d, scores);
  for (size_t t = kLanes; t < tokens; t += kLanes) top = hn::Max(top, hn::LoadU(d, scores + t));
  const float page_max = hn::GetLane(hn::MaxOfLanes(d, top));
  const float old_max = state.max[query];
  const float max = page_max > old_max ? page_max : old_max;
  // Without any finite score the reference is 0: weights are then 0, or NaN where a score is NaN.
  const FloatVec reference = hn::Set(d, max == kMinusInfinity ? 0.0f : max);
  FloatVec sum = hn::Zero(d);
  for (size_t t = 0; t < tokens; t += kLanes) {
    const FloatVec weight = exp_nonpositive(hn::Sub(hn::LoadU(d, scores + t), reference));
    hn::StoreU(weight, d, scores + t);
    sum = hn::Add(sum, weight);
  }
  const float correction = max == old_max ? 1.0f : exp_nonpositive(old_max - max);
  float* lane_sums = lane_sums_ + query * kLanes;
  hn::StoreU(hn::MulAdd(hn::LoadU(d, lane_sums), hn::Set(d, correction), sum), d, lane_sums);
  state.max[query] = max;
  correction_[query] = correction;
}

template <class T>
void Walk<T>::add_values(const PageView& page, Visibility seen, Rows rows, State& state) {
  const auto group = static_cast<size_t>(shape_.group);
  const size_t begin = static_cast<size_t>(rows.begin) * group;
  const auto count = static_cast<size_t>(rows.end - rows.begin) * group;
  const float* widened = nullptr;
  if (width_ != head_dim_ || widens(static_cast<int>(count))) widened = widen_values(page);
  auto add = [&](size_t query, size_t queries, SlotRange slots) HWY_ATTR {
    ValueBlock block{scores_ + query * page_tokens_,
                     page_tokens_,
                     correction_ + query,
                     state.out + query * width_,
                     width_,
                     head_dim_,
                     slots,
                     ahead_};
    if (widened != nullptr) {
      block.v_stride = width_;
      value_page(block, widened, static_cast<int>(queries));
    } else if constexpr (!kCodes) {
      value_page(block, reinterpret_cast<const T*>(page.v), static_cast<int>(queries));
    }
  };
  if (seen == Visibility::kAll) {
    add(begin, count, {0, page.count});
    return;
  }
  for (int row = rows.begin; row < rows.end; ++row) {
    const PositionSpan sees = span(row);
    const size_t query = static_cast<size_t>(row) * group;
    for (SlotRange run = visible_run(page, 0, sees); !run.empty(); run = visible_run(page, run.end, sees)) {
      add(query, group, run);
      std::fill_n(correction_ + query, group, 1.0f);
    }
  }
}

template <class T>
const float* Walk<T>::widen_keys(const PageView& page) const {
  if constexpr (!kCodes) {
    widen_keys(reinterpret_cast<const T*>(page.k));
  } else if (page.open) {
    widen_keys(reinterpret_cast<const F16*>(page.k));
  } else {
    widen_key_codes(args_.format, page.k, ahead_, keys_);
  }
  return keys_;
}

template <class T>
template <class Stored>
void Walk<T>::widen_keys(const Stored* k) const {
  const FloatTag d;
  for (size_t i = 0; i < head_dim_ * page_tokens_; i += kLanes) {
    hn::StoreU(load_kv(k + i), d, keys_ + i);
    prefetch_line<1>(k + i, ahead_);
  }
}

template <class T>
const float* Walk<T>::widen_values(const PageView& page) const {
  const auto tokens = static_cast<size_t>(page.count);
  if constexpr (!kCodes) {
    widen_values(reinterpret_cast<const T*>(page.v), tokens);
  } else if (page.open) {
    widen_values(reinterpret_cast<const F16*>(page.v), tokens);
  } else {
    widen_value_codes(args_.format, page.k, ahead_, tokens, width_, values_);
  }
  return values_;
}

template <class T>
template <class Stored>
void Walk<T>::widen_values(const Stored* v, size_t tokens) const {
  const FloatTag d;
  for (size_t t = 0; t < tokens; ++t, v += head_dim_) {
    float* to = values_ + t * width_;
    size_t i = 0;
    for (; i + kLanes <= head_dim_; i += kLanes) {
      hn::StoreU(load_kv(v + i), d, to + i);
      prefetch_line<1>(v + i, ahead_);
    }
    for (; i < head_dim_; ++i) to[i] = to_float(v[i]);
    for (; i < width_; ++i) to[i] = 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
