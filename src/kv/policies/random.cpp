#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"seed", "0", "same seed, same choice"},
    {"sinks", "4", "first tokens that stay"},
    {"recent", "32", "newest tokens that stay"},
};

// splitmix64's finalizer.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random final : public KvPolicy {
 public:
  Random(uint64_t seed, size_t sinks, size_t recent) : seed_(seed), sinks_(sinks), recent_(recent) {}

  size_t least_slots() const override { return sinks_ + recent_ + 1; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    const uint64_t place = (static_cast<uint64_t>(head.layer) << 48) | (static_cast<uint64_t>(head.head) << 32);
    for (size_t i = 0; i < head.slots(); ++i) {
      const uint64_t at = place | static_cast<uint32_t>(head.positions[i]);
      scores[i] = static_cast<float>(mix(mix(seed_ + 1) ^ at) >> 40);
    }
    protect(head, sinks_, recent_, scores);
  }

 private:
  uint64_t seed_;
  size_t sinks_, recent_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape&) {
  GODWIT_ASSIGN(const int64_t seed, args.integer("seed", 0, INT64_MAX));
  GODWIT_ASSIGN(const int64_t sinks, args.integer("sinks", 0, 1 << 20));
  GODWIT_ASSIGN(const int64_t recent, args.integer("recent", 0, 1 << 20));
  return std::make_unique<Random>(static_cast<uint64_t>(seed), static_cast<size_t>(sinks), static_cast<size_t>(recent));
}

}  // namespace

// A token's number depends on its position, layer and head alone, so that what is dropped does not depend on how often
// the trigger fires.
extern const KvPolicyRow kv_policy_random = {
    .info = {.name = "random",
             .description = "a random choice; what every other policy has to beat",
             .reference = "",
             .params = kParams},
    .trigger = "prefill",
    .make = make,
};

}  // namespace godwit
