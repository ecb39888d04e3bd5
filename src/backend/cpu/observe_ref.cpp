// The scalar reference of observe(): weights in fp64.
#include <cmath>

#include "backend/cpu/observe_work.h"
#include "backend/cpu/page_layout.h"

namespace godwit::cpu {
namespace {

class PlainWeights {
 public:
  static size_t scratch_floats(const AttentionShape&) { return 0; }

  PlainWeights(const ObserveWork& work, const PageView& page, int kv_head, float*)
      : work_(work), page_(page), kv_head_(kv_head) {}

  void operator()(int32_t row, float* weights) const {
    const int group = work_.shape().group;
    for (int slot = 0; slot < page_.count; ++slot) {
      double sum = 0;
      for (int head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) sum += weight(row, head, slot);
      weights[slot] = static_cast<float>(sum / group);
    }
  }

 private:
  double weight(int32_t row, int head, int slot) const {
    const AttentionArgs& args = work_.attention();
    const float lse = work_.lse(row, head);
    if (std::isinf(lse)) return 0;  // the empty partial
    const float* q = work_.query(row, head);
    const PageHalf keys = PageHalf::keys(page_.open ? args.format.open_format() : args.format);
    double score = 0;
    for (int d = 0; d < work_.shape().head_dim; ++d)
      score += static_cast<double>(q[d]) * keys.number(page_.k, static_cast<size_t>(slot), static_cast<size_t>(d));
    score *= static_cast<double>(args.scale);
    if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
    if (page_.bias != nullptr) score += page_.bias[slot];
    return std::exp(score - lse);
  }

  const ObserveWork& work_;
  const PageView& page_;
  int kv_head_;
};

}  // namespace

void fill_observe_ref(Kernels& table) {
  table.observe = &observe_with<PlainWeights>;
}

}  // namespace godwit::cpu
