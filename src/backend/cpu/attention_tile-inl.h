// The two matrix products of attention over one page, for a block of queries:
//   score_page  S[q, t] = sum over d of Q[q, d] K[d, t]     lanes over tokens, d in order
//   value_page  A[q, d] = A[q, d] c[q] + sum over t of P[q, t] V[t, d]     lanes over d, t in order
// Each element is one chain of multiply-adds in that order, however queries are grouped: results are bitwise the same
// for every shape of micro-kernel, which is what makes rows independent of their neighbours.
#if defined(GODWIT_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_ATTENTION_TILE_INL_H_
#undef GODWIT_CPU_ATTENTION_TILE_INL_H_
#else
#define GODWIT_CPU_ATTENTION_TILE_INL_H_
#endif

#include <hwy/cache_control.h>

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/attention_work.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kLanes = HWY_LANES(float);
// Accumulators of a micro-kernel: kMaxRows x kMaxColumns registers, with room for a row of operands.
// Fewer rows on old targets, since each number of rows costs a compilation.
inline constexpr int kMaxRows = kLanes == 1 ? 2 : kLanes == 4 ? 4 : 6;
inline constexpr int kMaxColumns = HWY_CAP_GE512 ? 4 : 2;

// Pages lie anywhere, so the processor cannot guess the next one. fp32 lines are not fetched ahead: they are mostly
// widened pages, in cache, and read by many rows.
template <int kColumns, class T>
HWY_INLINE void prefetch_line(const T* line, ptrdiff_t ahead) {
  if constexpr (sizeof(T) == sizeof(uint16_t)) {
    const char* next = reinterpret_cast<const char*>(line) + ahead;
    HWY_UNROLL(8)
    for (size_t byte = 0; byte < kColumns * kLanes * sizeof(T); byte += 64) hwy::Prefetch(next + byte);
  }
}

struct ScoreBlock {
  const float* q;  // [rows, head_dim]
  size_t head_dim;
  size_t page_tokens;
  float* s;         // [rows, page_tokens]
  ptrdiff_t ahead;  // bytes from here to the page that comes next
};

template <int kRows, int kColumns, class T>
HWY_INLINE void score_kernel(const ScoreBlock& block, const T* HWY_RESTRICT k, size_t column) {
  const FloatTag d;
  FloatVec sum[kRows][kColumns];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::Zero(d);
  }
  const float* HWY_RESTRICT q = block.q;
  const T* HWY_RESTRICT line = k + column;
  for (size_t dim = 0; dim < block.head_dim; ++dim, line += block.page_tokens) {
    FloatVec keys[kColumns];
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) keys[j] = load_kv(line + static_cast<size_t>(j) * kLanes);
    prefetch_line<kColumns>(line, block.ahead);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const FloatVec query = hn::Set(d, q[static_cast<size_t>(i) * block.head_dim + dim]);
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::MulAdd(query, keys[j], sum[i][j]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j)
      hn::StoreU(sum[i][j], d,
                 block.s + static_cast<size_t>(i) * block.page_tokens + column + static_cast<size_t>(j) * kLanes);
  }
}

template <int kRows, class T>
HWY_NOINLINE void score_rows(const ScoreBlock& block, const T* k, size_t tokens) {
  size_t column = 0;
  for (; column + (kMaxColumns - 1) * kLanes < tokens; column += kMaxColumns * kLanes)
    score_kernel<kRows, kMaxColumns>(block, k, column);
  if constexpr (kMaxColumns > 2) {
    for (; column + kLanes < tokens; column += 2 * kLanes) score_kernel<kRows, 2>(block, k, column);
  }
  for (; column < tokens; column += kLanes) score_kernel<kRows, 1>(block, k, column);
}

struct ValueBlock {
  const float* p;  // [rows, p_stride]
  size_t p_stride;
  const float* correction;  // [rows]
  float* out;               // [rows, width]
  size_t width;             // head_dim, rounded up to whole vectors
  size_t v_stride;
  SlotRange slots;
  ptrdiff_t ahead;  // as above
};

template <int kRows, int kColumns, class T>
HWY_INLINE void value_kernel(const ValueBlock& block, const T* HWY_RESTRICT v, size_t column) {
  const FloatTag d;
  FloatVec sum[kRows][kColumns];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    const FloatVec factor = hn::Set(d, block.correction[i]);
    const float* out = block.out + static_cast<size_t>(i) * block.width + column;
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::Mul(hn::LoadU(d, out + static_cast<size_t>(j) * kLanes), factor);
  }
  const float* HWY_RESTRICT p = block.p;
  const auto begin = static_cast<size_t>(block.slots.begin), end = static_cast<size_t>(block.slots.end);
  const T* HWY_RESTRICT line = v + begin * block.v_stride + column;
  for (size_t slot = begin; slot < end; ++slot, line += block.v_stride) {
    FloatVec values[kColumns];
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) values[j] = load_kv(line + static_cast<size_t>(j) * kLanes);
    prefetch_line<kColumns>(line, block.ahead);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      const FloatVec weight = hn::Set(d, p[static_cast<size_t>(i) * block.p_stride + slot]);
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::MulAdd(weight, values[j], sum[i][j]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    float* out = block.out + static_cast<size_t>(i) * block.width + column;
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) hn::StoreU(sum[i][j], d, out + static_cast<size_t>(j) * kLanes);
  }
}

template <int kRows, class T>
HWY_NOINLINE void value_rows(const ValueBlock& block, const T* v) {
  size_t column = 0;
  for (; column + kMaxColumns * kLanes <= block.width; column += kMaxColumns * kLanes)
    value_kernel<kRows, kMaxColumns>(block, v, column);
  if constexpr (kMaxColumns > 2) {
    for (; column + 2 * kLanes <= block.width; column += 2 * kLanes) value_kernel<kRows, 2>(block, v, column);
  }
  for (; column < block.width; column += kLanes) value_kernel<kRows, 1>(block, v, column);
}

// min(rows, kRows) rows at once.
template <int kRows, class T>
void score_up_to(const ScoreBlock& block, const T* k, int rows, size_t tokens) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return score_up_to<kRows - 1>(block, k, rows, tokens);
  }
  score_rows<kRows>(block, k, tokens);
}
template <int kRows, class T>
void value_up_to(const ValueBlock& block, const T* v, int rows) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return value_up_to<kRows - 1>(block, v, rows);
  }
  value_rows<kRows>(block, v);
}

// Scores of `rows` queries with the first `tokens` slots, rounded up to whole vectors.
template <class T>
void score_page(ScoreBlock block, const T* k, int rows, size_t tokens) {
  for (; rows > 0; rows -= kMaxRows) {
    score_up_to<kMaxRows>(block, k, rows, tokens);
    block.q += kMaxRows * block.head_dim;
    block.s += kMaxRows * block.page_tokens;
  }
}

// Adds the weighted values of block.slots to `rows` queries.
template <class T>
void value_page(ValueBlock block, const T* v, int rows) {
  for (; rows > 0; rows -= kMaxRows) {
    value_up_to<kMaxRows>(block, v, rows);
    block.p += kMaxRows * block.p_stride;
    block.correction += kMaxRows;
    block.out += kMaxRows * block.width;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
