#include <algorithm>
#include <cmath>
#include <numeric>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {{"recent", "0.25", "share of the budget for the newest tokens"}};

// Rank of each number, the highest first, ties to the newer.
std::vector<size_t> ranks(std::span<const float> numbers) {
  std::vector<size_t> order(numbers.size()), rank(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return numbers[a] != numbers[b] ? numbers[a] > numbers[b] : a > b; });
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

class InfiniPot final : public KvPolicy {
 public:
  InfiniPot(double recent, int layers) : recent_(recent), layers_(layers) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kNone, .last_queries = 0, .use_factor = 0, .keys_values = true};
  }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    const auto recent = static_cast<size_t>(std::ceil(recent_ * static_cast<double>(head.budget)));
    const std::vector<size_t> by_value = ranks(value_norms(head)), by_novelty = ranks(novelty(head, recent));
    // The best of both lists in turn, which is half of the budget for each.
    for (size_t i = 0; i < head.slots(); ++i) scores[i] = -static_cast<float>(std::min(by_value[i], by_novelty[i]));
    protect(head, 0, recent, scores);
  }

 private:
  std::vector<float> value_norms(const KvHeadView& head) const {
    constexpr int kKernels[] = {7, 5, 3, 1};  // early layers look at neighbourhoods, late ones at tokens
    std::vector<float> norms, pooled(head.slots());
    for (size_t i = 0; i < head.slots(); ++i) norms.push_back(norm(head.value(i)));
    pool_votes(norms, kKernels[4 * head.layer / layers_], false, pooled);
    return pooled;
  }

  // Minus the cosine with the mean of the newest keys.
  static std::vector<float> novelty(const KvHeadView& head, size_t recent) {
    const size_t slots = head.slots(), dim = head.head_dim;
    std::vector<float> mean(dim, 0.0F), result;
    for (size_t i = slots - std::min(slots, std::max<size_t>(recent, 1)); i < slots; ++i)
      for (size_t d = 0; d < dim; ++d) mean[d] += head.keys[i * dim + d];
    for (size_t i = 0; i < slots; ++i) result.push_back(-cosine(head.key(i), mean));
    return result;
  }

  double recent_;
  int layers_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  GODWIT_ASSIGN(const double recent, args.real("recent", 0, 1));
  return std::make_unique<InfiniPot>(recent, shape.layers);
}

}  // namespace

// Nothing of the question is looked at: half of the budget goes to values of large norm, half to keys unlike the
// newest. Made for video, where a key is compared with the keys at its own place of the newest frames; a text has no
// frames, so the mean of the newest keys stands for them. Keys are compared as they are stored, after RoPE.
extern const KvPolicyRow kv_policy_infinipot = {
    .info = {.name = "infinipot",
             .description = "large values, keys unlike the newest, and the newest: a hard cap that knows no question",
             .reference = "Kim et al., InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video "
                          "Understanding, arXiv 2506.15745",
             .params = kParams},
    .trigger = "chunk",
    .make = make,
};

}  // namespace godwit
