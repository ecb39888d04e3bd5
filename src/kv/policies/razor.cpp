#include <algorithm>
#include <cmath>

#include "kv/head_gates.h"
#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"gates", "", "JSON file with a gate for each KV head; godwit tune razor makes one"},
    {"threshold", "0.85", "heads with a lower gate drop what is far"},
    {"sinks", "4", "first tokens that stay"},
    {"recent", "4000", "newest tokens that stay, at least"},
    {"share", "0.2", "share of all tokens that the newest are, at least"},
    {"compensate", "true", "what is dropped leaves its mean, with its count"},
};

class Razor final : public KvPolicy {
 public:
  struct Settings {
    double threshold;
    size_t sinks, recent;
    double share;
    bool compensate;
  };
  Razor(HeadGates gates, const Settings& settings) : gates_(std::move(gates)), s_(settings) {}

  KvNeeds needs() const override {
    return {.queries = KvNeeds::Queries::kNone, .last_queries = 0, .use_factor = 0, .keys_values = s_.compensate};
  }
  bool merges() const override { return s_.compensate; }

  void score(const KvHeadView& head, std::span<float> scores) const override {
    std::fill(scores.begin(), scores.end(), 0.0F);
    if (gates_.at(head.layer, head.head) >= s_.threshold) return;
    const size_t token = compensation(head, scores);
    if (s_.compensate && token < head.slots()) scores[token] = kKeepSlot;
  }

  std::vector<KvMerge> merge(const KvHeadView& head, std::span<const uint32_t> kept) const override {
    if (gates_.at(head.layer, head.head) >= s_.threshold) return {};
    std::vector<float> scores(head.slots());
    const size_t token = compensation(head, scores);
    if (!std::binary_search(kept.begin(), kept.end(), token)) return {};
    std::vector<KvMerge> merges;
    for (uint32_t slot = 0; slot < head.slots(); ++slot)
      if (scores[slot] == kDropSlot) merges.push_back({slot, static_cast<uint32_t>(token), head.counts[slot]});
    return merges;
  }

 private:
  // Marks what goes, and gives the slot that is to stand for it: the one that does already, or the newest.
  size_t compensation(const KvHeadView& head, std::span<float> scores) const {
    const auto share = static_cast<size_t>(std::ceil(s_.share * static_cast<double>(head.next_position)));
    std::fill(scores.begin(), scores.end(), kDropSlot);
    protect(head, s_.sinks, std::max(s_.recent, share), scores);
    size_t token = head.slots();
    for (size_t i = 0; i < head.slots() && s_.compensate; ++i)
      if (scores[i] == kDropSlot && (token == head.slots() || head.counts[i] >= head.counts[token])) token = i;
    return token;
  }

  HeadGates gates_;
  Settings s_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  GODWIT_ASSIGN(HeadGates gates, HeadGates::read("razor", args.text("gates"), shape));
  GODWIT_ASSIGN(const double threshold, args.real("threshold", 0, 1));
  GODWIT_ASSIGN(const int64_t sinks, args.integer("sinks", 0, 1 << 20));
  GODWIT_ASSIGN(const int64_t recent, args.integer("recent", 1, 1 << 20));
  GODWIT_ASSIGN(const double share, args.real("share", 0, 1));
  GODWIT_ASSIGN(const bool compensate, args.flag("compensate"));
  return std::make_unique<Razor>(std::move(gates), Razor::Settings{threshold, static_cast<size_t>(sinks),
                                                                   static_cast<size_t>(recent), share, compensate});
}

}  // namespace

// Heads that look tokens up keep everything; the others keep the first and the newest, and one token more that is the
// mean of what they dropped and counts as often. Gates are of KV heads: a group of query heads is judged by its mean.
extern const KvPolicyRow kv_policy_razor = {
    .info = {.name = "razor",
             .description = "retrieval heads keep everything, others the first, the newest and the mean of the rest",
             .reference = "Tang et al., RazorAttention: Efficient KV Cache Compression Through Retrieval Heads, arXiv "
                          "2407.15891",
             .params = kParams},
    .trigger = "prefill",
    .needs_budget = false,
    .make = make,
};

}  // namespace godwit
