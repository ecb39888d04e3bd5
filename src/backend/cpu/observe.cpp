// observe() for every SIMD target of Highway, in fp32: a page's keys are expanded once, then each row's scores are
// lanes of neighbouring slots.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/observe.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/observe_work.h"
#include "backend/cpu/page_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

template <class T>
class VectorWeights {
 public:
  static size_t scratch_floats(const AttentionShape& shape) {
    return static_cast<size_t>(shape.page_tokens) * static_cast<size_t>(shape.head_dim + shape.group);
  }

  VectorWeights(const ObserveWork& work, const PageView& page, int kv_head, float* scratch)
      : work_(work), page_(page), first_head_(kv_head * work.shape().group), keys_(scratch) {
    const size_t tokens = page_tokens(), numbers = tokens * head_dim();
    if constexpr (!std::is_same_v<T, Codes>) {
      widen<T>(page, numbers);
    } else if (page.open) {
      widen<F16>(page, numbers);
    } else {
      widen_key_codes(work.attention().format, page.k, 0, keys_);
    }
    scores_ = keys_ + numbers;
  }

  void operator()(int32_t row, float* weights) const {
    const auto group = static_cast<size_t>(work_.shape().group);
    size_t head = 0;
    for (; head + 3 <= group; head += 3) dot<3>(row, head);
    for (; head < group; ++head) dot<1>(row, head);
    const FloatTag d;
    const size_t tokens = page_tokens(), lanes = hn::Lanes(d);
    const FloatVec share = hn::Set(d, 1.0f / static_cast<float>(group));
    for (size_t slot = 0; slot < tokens; slot += lanes) {
      FloatVec sum = hn::Zero(d);
      for (size_t i = 0; i < group; ++i) {
        const float lse = work_.lse(row, first_head_ + static_cast<int>(i));
        if (lse == -HUGE_VALF) continue;  // the empty partial
        sum = hn::Add(sum, exp_nonpositive(hn::Sub(score(i, slot), hn::Set(d, lse))));
      }
      hn::StoreU(hn::Mul(sum, share), d, weights + slot);
    }
  }

 private:
  template <class Number>
  void widen(const PageView& page, size_t numbers) {
    const FloatTag d;
    const auto* stored = reinterpret_cast<const Number*>(page.k);
    for (size_t i = 0; i < numbers; i += hn::Lanes(d)) hn::StoreU(load_kv(stored + i), d, keys_ + i);
  }
  size_t page_tokens() const { return static_cast<size_t>(work_.shape().page_tokens); }
  size_t head_dim() const { return static_cast<size_t>(work_.shape().head_dim); }

  // Dot products of `kHeads` queries of the group with every key.
  template <size_t kHeads>
  void dot(int32_t row, size_t head) const {
    constexpr size_t kVectors = 4;
    const size_t tokens = page_tokens(), lanes = hn::Lanes(FloatTag());
    size_t slot = 0;
    for (; slot + kVectors * lanes <= tokens; slot += kVectors * lanes) dot_block<kHeads, kVectors>(row, head, slot);
    for (; slot < tokens; slot += lanes) dot_block<kHeads, 1>(row, head, slot);
  }

  template <size_t kHeads, size_t kVectors>
  HWY_INLINE void dot_block(int32_t row, size_t head, size_t slot) const {
    const FloatTag d;
    const size_t tokens = page_tokens(), dim = head_dim(), lanes = hn::Lanes(d);
    const float* q[kHeads];
    FloatVec sums[kHeads][kVectors];
    for (size_t h = 0; h < kHeads; ++h) {
      q[h] = work_.query(row, first_head_ + static_cast<int>(head + h));
      for (size_t v = 0; v < kVectors; ++v) sums[h][v] = hn::Zero(d);
    }
    const float* keys = keys_ + slot;
    for (size_t i = 0; i < dim; ++i, keys += tokens) {
      FloatVec k[kVectors];
      for (size_t v = 0; v < kVectors; ++v) k[v] = hn::LoadU(d, keys + v * lanes);
      for (size_t h = 0; h < kHeads; ++h) {
        const FloatVec x = hn::Set(d, q[h][i]);
        for (size_t v = 0; v < kVectors; ++v) sums[h][v] = hn::MulAdd(x, k[v], sums[h][v]);
      }
    }
    for (size_t h = 0; h < kHeads; ++h)
      for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[h][v], d, scores_ + (head + h) * tokens + slot + v * lanes);
  }

  FloatVec score(size_t head, size_t slot) const {
    const FloatTag d;
    const AttentionArgs& args = work_.attention();
    FloatVec score = hn::Mul(hn::LoadU(d, scores_ + head * page_tokens() + slot), hn::Set(d, args.scale));
    if (args.softcap > 0)
      score = hn::Mul(hn::Set(d, args.softcap), tanh_full(hn::Mul(score, hn::Set(d, 1.0f / args.softcap))));
    return page_.bias == nullptr ? score : hn::Add(score, hn::LoadU(d, page_.bias + slot));
  }

  const ObserveWork& work_;
  const PageView& page_;
  int first_head_;
  float* keys_;    // [head_dim, page_tokens]
  float* scores_;  // [group, page_tokens]
};

void observe(Context& context, const ObserveArgs& args) {
  if (args.attention.format.packed()) return observe_with<VectorWeights<Codes>>(context, args);
  switch (args.attention.format.dtype) {
    case DType::kF16:
      return observe_with<VectorWeights<F16>>(context, args);
    case DType::kBF16:
      return observe_with<VectorWeights<BF16>>(context, args);
    default:
      return observe_with<VectorWeights<float>>(context, args);
  }
}

void fill_target_observe(Kernels& table) {
  table.observe = &observe;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(fill_target_observe);

void fill_observe(Kernels& table, int64_t target) {
  GODWIT_DISPATCH(fill_target_observe, target)(table);
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
