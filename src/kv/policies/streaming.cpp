#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {{"sinks", "4", "first tokens that stay"}};

class Streaming final : public KvPolicy {
 public:
  explicit Streaming(size_t sinks) : sinks_(sinks) {}

  size_t least_slots() const override { return sinks_ + 1; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    for (size_t i = 0; i < head.slots(); ++i) scores[i] = static_cast<float>(i);
    protect(head, sinks_, 0, scores);
  }

 private:
  size_t sinks_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t sinks, args.integer("sinks", 0, 1 << 20));
  return std::make_unique<Streaming>(static_cast<size_t>(sinks));
}

}  // namespace

// Deviation: tokens keep their positions in the text; the paper numbers those that are left anew.
extern const KvPolicyRow kv_policy_streaming = {
    .info = {.name = "streaming",
             .description = "the first tokens and the newest",
             .reference = "Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453",
             .params = kParams},
    .trigger = "chunk",
    .make = make,
};

}  // namespace godwit
