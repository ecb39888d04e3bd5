#include <algorithm>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"chunk", "64", "neighbours among which a partner is looked for"},
    {"sinks", "4", "first tokens that stay as they are"},
    {"recent", "32", "newest tokens that stay as they are"},
};

// Slots joined one another until the budget was met.
struct Clusters {
  std::vector<uint32_t> parent;  // what a slot joined; itself: nothing
  std::vector<uint32_t> order;   // when, from 1 on; 0: never
};

class Chelsea final : public KvPolicy {
 public:
  Chelsea(size_t chunk, size_t sinks, size_t recent) : chunk_(chunk), sinks_(sinks), recent_(recent) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kNone, .last_queries = 0, .use_factor = 0, .keys_values = true};
  }
  size_t least_slots() const override { return sinks_ + recent_ + 1; }
  bool merges() const override { return true; }

  // What joined last is the first to stay after all.
  void score(const KvHeadView& head, std::span<float> scores) const override {
    const Clusters clusters = cluster(head);
    const auto slots = static_cast<float>(head.slots());
    for (size_t i = 0; i < head.slots(); ++i)
      scores[i] = clusters.order[i] > 0 ? static_cast<float>(clusters.order[i]) : slots + 1;
    protect(head, sinks_, recent_, scores);
  }

  std::vector<KvMerge> merge(const KvHeadView& head, std::span<const uint32_t> kept) const override {
    const Clusters clusters = cluster(head);
    std::vector<bool> stays(head.slots());
    std::vector<KvMerge> merges;
    for (uint32_t slot : kept) {
      stays[slot] = true;
      merges.push_back({slot, slot, head.counts[slot]});
    }
    for (uint32_t slot = 0; slot < head.slots(); ++slot) {
      uint32_t into = slot;
      while (!stays[into] && clusters.parent[into] != into) into = clusters.parent[into];
      if (into != slot && stays[into]) merges.push_back({slot, into, head.counts[slot]});
    }
    return merges;
  }

 private:
  struct Edge {
    float likeness;
    uint32_t from, into;
  };

  Clusters cluster(const KvHeadView& head) const {
    const size_t slots = head.slots(), dim = head.head_dim;
    Clusters result{std::vector<uint32_t>(slots), std::vector<uint32_t>(slots, 0)};
    std::vector<float> keys(head.keys.begin(), head.keys.end()), counts(head.counts.begin(), head.counts.end());
    std::vector<uint32_t> open;  // may still join others
    std::vector<float> marks(slots, 0.0F);
    protect(head, sinks_, recent_, marks);
    for (uint32_t i = 0; i < slots; ++i) {
      result.parent[i] = i;
      if (marks[i] == 0) open.push_back(i);
    }
    uint32_t joined = 0;
    size_t left = slots - std::min(slots, head.budget);
    auto key = [&](uint32_t slot) { return std::span<const float>(keys).subspan(slot * dim, dim); };
    while (left > 0 && open.size() > 1) {
      std::vector<float> norms(slots);
      for (uint32_t slot : open) norms[slot] = std::max(norm(key(slot)), 1e-20F);
      std::vector<Edge> edges;  // every other slot to the most similar one of the rest of its chunk
      for (size_t begin = 0; begin < open.size(); begin += chunk_) {
        const size_t end = std::min(open.size(), begin + chunk_);
        for (size_t a = begin; a < end; a += 2) {
          Edge best{-2, 0, 0};
          for (size_t b = begin + 1; b < end; b += 2) {
            const float likeness = dot(key(open[a]), key(open[b])) / (norms[open[a]] * norms[open[b]]);
            if (likeness > best.likeness) best = {likeness, open[a], open[b]};
          }
          if (best.likeness > -2) edges.push_back(best);
        }
      }
      if (edges.empty()) break;
      std::sort(edges.begin(), edges.end(), [](const Edge& x, const Edge& y) {
        return x.likeness != y.likeness ? x.likeness > y.likeness : x.from < y.from;
      });
      edges.resize(std::min(edges.size(), left));
      left -= edges.size();
      for (const Edge& edge : edges) {
        result.parent[edge.from] = edge.into;
        result.order[edge.from] = ++joined;
        const float both = counts[edge.from] + counts[edge.into], share = counts[edge.from] / both;
        for (size_t d = 0; d < dim; ++d)
          keys[edge.into * dim + d] += share * (keys[edge.from * dim + d] - keys[edge.into * dim + d]);
        counts[edge.into] = both;
      }
      std::erase_if(open, [&](uint32_t slot) { return result.order[slot] > 0; });
    }
    return result;
  }

  size_t chunk_, sinks_, recent_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t chunk, args.integer("chunk", 2, 4096));
  GODWIT_ASSIGN(const int64_t sinks, args.integer("sinks", 0, 1 << 20));
  GODWIT_ASSIGN(const int64_t recent, args.integer("recent", 0, 1 << 20));
  return std::make_unique<Chelsea>(static_cast<size_t>(chunk), static_cast<size_t>(sinks), static_cast<size_t>(recent));
}

}  // namespace

// Nothing is dropped: in rounds, every other entry of a chunk may join the most similar one of the rest, and the most
// similar pairs do, until the budget is met. Keys are compared as they are stored, after RoPE. Look-alike keys with
// different values are its failure.
extern const KvPolicyRow kv_policy_chelsea = {
    .info = {.name = "chelsea",
             .description = "neighbours with similar keys become their mean",
             .reference = "Hu et al., Efficient Long-Context LLM Inference via KV Cache Clustering, arXiv 2506.11418",
             .params = kParams},
    .trigger = "chunk",
    .make = make,
};

}  // namespace godwit
