#include <algorithm>
#include <cmath>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"epsilon", "0.75", "least cosine of neighbouring keys that are merged"},
    {"window", "32", "last queries that say which tokens matter; their tokens stay"},
    {"heavy", "0.2", "share of the budget for the most attended tokens, which stay as they are"},
};

class KvMerger final : public KvPolicy {
 public:
  KvMerger(float epsilon, int window, double heavy) : epsilon_(epsilon), window_(window), heavy_(heavy) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kLast, .last_queries = window_, .use_factor = 1, .keys_values = true};
  }
  size_t least_slots() const override { return static_cast<size_t>(window_) + 1; }
  bool merges() const override { return true; }

  // A slot that is unlike the one before it begins a run and is worth the more the less it is like it; what goes on a
  // run is worth less than any beginning.
  void score(const KvHeadView& head, std::span<float> scores) const override {
    for (size_t i = 0; i < head.slots(); ++i) {
      const float likeness = i > 0 ? cosine(head.key(i), head.key(i - 1)) : -1;
      scores[i] = likeness >= epsilon_ ? -2 - likeness : -likeness;
    }
    for (size_t slot : heaviest(head)) scores[slot] = kKeepSlot;
    protect(head, 0, std::min(head.slots(), head.query_positions.size()), scores);
  }

  std::vector<KvMerge> merge(const KvHeadView& head, std::span<const uint32_t> kept) const override {
    std::vector<float> protects(head.slots(), 0.0F);
    for (size_t slot : heaviest(head)) protects[slot] = kKeepSlot;
    protect(head, 0, std::min(head.slots(), head.query_positions.size()), protects);
    std::vector<KvMerge> merges;
    for (size_t i = 0; i < kept.size(); ++i) {
      const uint32_t begin = kept[i], end = i + 1 < kept.size() ? kept[i + 1] : static_cast<uint32_t>(head.slots());
      if (protects[begin] == kKeepSlot) continue;
      std::vector<uint32_t> run = {begin};
      for (uint32_t slot = begin + 1; slot < end && cosine(head.key(slot), head.key(slot - 1)) >= epsilon_; ++slot)
        run.push_back(slot);
      if (run.size() > 1) weigh(head, run, merges);
    }
    return merges;
  }

 private:
  std::vector<size_t> heaviest(const KvHeadView& head) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < head.slots(); ++i) order.push_back(i);
    const size_t count =
        std::min(order.size(), static_cast<size_t>(std::ceil(heavy_ * static_cast<double>(head.budget))));
    std::partial_sort(
        order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
        [&](size_t a, size_t b) { return head.mass[a] != head.mass[b] ? head.mass[a] > head.mass[b] : a > b; });
    order.resize(count);
    return order;
  }

  // A Gaussian around the most attended member, as wide as the run is.
  static void weigh(const KvHeadView& head, std::span<const uint32_t> run, std::vector<KvMerge>& merges) {
    const uint32_t pivot =
        *std::max_element(run.begin(), run.end(), [&](uint32_t a, uint32_t b) { return head.mass[a] < head.mass[b]; });
    std::vector<float> squares;
    float sum = 0;
    for (uint32_t slot : run) {
      float square = 0;
      for (size_t d = 0; d < head.head_dim; ++d) {
        const float difference = head.key(slot)[d] - head.key(pivot)[d];
        square += difference * difference;
      }
      squares.push_back(square);
      sum += std::sqrt(square);
    }
    const float sigma = sum / (std::sqrt(2.0F) * static_cast<float>(run.size()));
    for (size_t i = 0; i < run.size(); ++i) {
      const float closeness = squares[i] > 0 ? std::exp(-squares[i] / (2 * sigma * sigma)) : 1.0F;
      merges.push_back({run[i], run[0], head.counts[run[i]] * std::max(closeness, 1e-6F)});
    }
  }

  float epsilon_;
  int window_;
  double heavy_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const double epsilon, args.real("epsilon", -1, 1));
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 1, 4096));
  GODWIT_ASSIGN(const double heavy, args.real("heavy", 0, 1));
  return std::make_unique<KvMerger>(static_cast<float>(epsilon), static_cast<int>(window), heavy);
}

}  // namespace

// Runs of neighbours with similar keys become one entry, the mean weighted by a Gaussian around the most attended of
// them; heavy hitters and the newest stay as they are. Deviations: the budget decides how many runs there are, and
// where runs alone cannot meet it, the beginnings that are most like what precedes them are dropped; counts weigh. Keys
// are compared as they are stored, after RoPE. A needle inside a repetitive run is its failure.
extern const KvPolicyRow kv_policy_kvmerger = {
    .info = {.name = "kvmerger",
             .description = "runs of similar keys become one entry; heavy hitters and the newest stay",
             .reference = "Wang et al., Model Tells You Where to Merge: Adaptive KV Cache Merging for LLMs on "
                          "Long-Context Tasks, arXiv 2407.08454",
             .params = kParams},
    .trigger = "prefill",
    .make = make,
};

}  // namespace godwit
