#include <algorithm>

#include "kv/head_gates.h"
#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"gates", "", "JSON file with a gate for each KV head; godwit tune makes one"},
    {"threshold", "0.5", "heads with a lower gate keep only sinks and the newest"},
};

class Duo final : public KvPolicy {
 public:
  Duo(HeadGates gates, double threshold) : gates_(std::move(gates)), threshold_(threshold) {}

  size_t least_slots() const override { return gates_.sinks + gates_.recent; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    if (gates_.at(head.layer, head.head) >= threshold_) {
      std::fill(scores.begin(), scores.end(), 0.0F);
      return;
    }
    std::fill(scores.begin(), scores.end(), kDropSlot);
    protect(head, gates_.sinks, gates_.recent, scores);
  }

 private:
  HeadGates gates_;
  double threshold_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  GODWIT_ASSIGN(const double threshold, args.real("threshold", 0, 1));
  GODWIT_ASSIGN(HeadGates gates, HeadGates::read("duo", args.text("gates"), shape));
  return std::make_unique<Duo>(std::move(gates), threshold);
}

}  // namespace

// A head that retrieves keeps everything, or the newest where a budget is given besides. Deviation: streaming heads
// drop when the trigger fires; inside a chunk they still see all of it.
extern const KvPolicyRow kv_policy_duo = {
    .info = {.name = "duo",
             .description = "retrieval heads keep everything, streaming heads the first tokens and the newest",
             .reference =
                 "Xiao et al., DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming "
                 "Heads, arXiv 2410.10819",
             .params = kParams},
    .trigger = "chunk",
    .needs_budget = false,
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
