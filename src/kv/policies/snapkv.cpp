#include <algorithm>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"window", "32", "last queries that vote; their tokens stay"},
    {"kernel", "5", "votes are pooled over this many neighbours, so that words stay whole"},
    {"pool", "avg", "avg or max"},
};

class SnapKv final : public KvPolicy {
 public:
  SnapKv(int window, int kernel, bool max) : window_(window), kernel_(kernel), max_(max) {}

  KvNeeds needs() const override { return {.queries = KvNeeds::Queries::kLast, .last_queries = window_}; }
  size_t least_slots() const override { return static_cast<size_t>(window_) + 1; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    const size_t slots = head.slots(), window = std::min(slots, head.query_positions.size());
    pool_votes(head.mass.first(slots - window), kernel_, max_, scores);
    protect(head, 0, window, scores);
  }

 private:
  int window_, kernel_;
  bool max_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t window, args.integer("window", 1, 4096));
  GODWIT_ASSIGN(const int64_t kernel, args.odd_integer("kernel", 1, 1023));
  const std::string& pool = args.text("pool");
  if (pool != "avg" && pool != "max")
    return errorf(ErrorCode::kInvalidArgument, "pool of KV policy 'snapkv' is '{}'; give avg or max", pool);
  return std::make_unique<SnapKv>(static_cast<int>(window), static_cast<int>(kernel), pool == "max");
}

}  // namespace

// The query heads of a KV head vote together (mean). Neighbours are those in the cache: after an earlier drop they may
// lie apart in the text.
extern const KvPolicyRow kv_policy_snapkv = {
    .info = {.name = "snapkv",
             .description = "what the last queries of the prompt attend to, pooled over neighbours",
             .reference = "Li et al., SnapKV: LLM Knows What You are Looking for Before Generation, arXiv 2404.14469",
             .params = kParams},
    .trigger = "prefill",
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
