#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"base", "snapkv", "policy that has the first choice, NAME[:k=v;…]"},
    {"share", "0.25", "share of the budget for representatives of what it would drop"},
    {"block", "16", "tokens that are represented together, at most 64"},
    {"anchor", "alternate", "signature that others are compared with: zeros, ones or alternate"},
};

class KvCrush final : public KvPolicy {
 public:
  struct Settings {
    double share;
    size_t block;
    uint64_t anchor;
  };
  KvCrush(std::shared_ptr<const KvPolicy> base, const Settings& settings) : base_(std::move(base)), s_(settings) {}

  KvNeeds needs() const override { return base_->needs(); }
  size_t least_slots() const override { return base_->least_slots(); }
  double demand(const KvHeadView& head) const override { return base_->demand(head); }

  void score(const KvHeadView& head, std::span<float> scores) const override {
    const size_t slots = head.slots();
    base_->score(head, scores);
    std::vector<uint32_t> order(slots);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a > b; });
    const size_t budget = std::min(slots, head.budget);
    if (budget == slots) return;
    const auto for_others = static_cast<size_t>(std::floor(s_.share * static_cast<double>(budget)));
    std::vector<bool> chosen(slots), above(slots);
    for (size_t i = 0; i < budget - for_others; ++i) chosen[order[i]] = true;
    for (size_t i = 0; i < slots / 2; ++i) above[order[i]] = true;
    const std::vector<uint32_t> spread = representatives(chosen, above, for_others);
    // From here on only the order counts: what the base chose, representatives, the rest.
    for (size_t i = 0; i < slots; ++i) {
      if (scores[order[i]] == kKeepSlot || scores[order[i]] == kDropSlot) continue;
      scores[order[i]] = static_cast<float>(slots - i) + (chosen[order[i]] ? 2 * static_cast<float>(slots) : 0.0F);
    }
    for (uint32_t slot : spread)
      if (scores[slot] != kDropSlot) scores[slot] += static_cast<float>(slots);
  }

 private:
  // Slots of blocks that lie evenly over the distances of all blocks from the anchor.
  std::vector<uint32_t> representatives(const std::vector<bool>& chosen, const std::vector<bool>& above,
                                        size_t most) const {
    struct Block {
      int distance;
      uint32_t begin;
      std::vector<uint32_t> slots;  // that the base policy would drop
    };
    std::vector<Block> blocks;
    for (uint32_t begin = 0; begin < chosen.size(); begin += static_cast<uint32_t>(s_.block)) {
      Block block{0, begin, {}};
      uint64_t signature = 0;
      const size_t end = std::min(chosen.size(), begin + s_.block);
      for (uint32_t i = begin; i < end; ++i) {
        signature |= static_cast<uint64_t>(above[i]) << (i - begin);
        if (!chosen[i]) block.slots.push_back(i);
      }
      const uint64_t mask = end - begin < 64 ? (uint64_t{1} << (end - begin)) - 1 : ~uint64_t{0};
      block.distance = std::popcount((signature ^ s_.anchor) & mask);
      if (!block.slots.empty()) blocks.push_back(std::move(block));
    }
    std::stable_sort(blocks.begin(), blocks.end(),
                     [](const Block& a, const Block& b) { return a.distance < b.distance; });
    std::vector<uint32_t> slots;
    const size_t wanted = std::min(blocks.size(), most / s_.block + 1);
    for (size_t i = 0; i < wanted && slots.size() < most; ++i) {
      const Block& block = blocks[i * blocks.size() / wanted];
      for (uint32_t slot : block.slots)
        if (slots.size() < most) slots.push_back(slot);
    }
    return slots;
  }

  std::shared_ptr<const KvPolicy> base_;
  Settings s_;
};

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  std::string base = args.text("base");
  std::replace(base.begin(), base.end(), ';', ',');
  if (base.starts_with("kvcrush"))
    return errorf(ErrorCode::kInvalidArgument, "base of KV policy 'kvcrush' is itself; give another policy");
  GODWIT_ASSIGN(const NamedKvPolicy chosen, make_kv_policy(base, shape));
  if (!chosen.row->needs_budget || chosen.row->demotes || chosen.policy->merges())
    return errorf(ErrorCode::kInvalidArgument, "base of KV policy 'kvcrush' is '{}', which drops nothing by a budget",
                  chosen.row->info.name);
  GODWIT_ASSIGN(const double share, args.real("share", 0, 1));
  GODWIT_ASSIGN(const int64_t block, args.integer("block", 1, 64));
  const std::string& anchor = args.text("anchor");
  if (anchor != "zeros" && anchor != "ones" && anchor != "alternate")
    return errorf(ErrorCode::kInvalidArgument, "anchor of KV policy 'kvcrush' is '{}'; give zeros, ones or alternate",
                  anchor);
  const uint64_t bits = anchor == "zeros" ? 0 : anchor == "ones" ? ~uint64_t{0} : 0x5555555555555555;
  return std::make_unique<KvCrush>(chosen.policy, KvCrush::Settings{share, static_cast<size_t>(block), bits});
}

}  // namespace

// The base policy has the first choice; the rest of the budget goes to blocks of what it would drop. A block's
// signature has a bit for each token, set where its score is in the better half; blocks are sorted by their distance
// from an anchor, and those taken lie evenly over that order. share=0 is the base policy. Deviation: the paper's
// signature of a token has a bit for each head; here heads decide for themselves, and the block form is used. Each base
// policy's own trigger is to be given, where it is not snapkv's.
extern const KvPolicyRow kv_policy_kvcrush = {
    .info = {.name = "kvcrush",
             .description = "another policy's choice, and representatives of what it would drop",
             .reference =
                 "Jha et al., KVCrush: Key Value Cache Size-Reduction Using Similarity in Head-Behaviour, arXiv "
                 "2503.00022",
             .params = kParams},
    .trigger = "prefill",
    .make = make,
};

}  // namespace godwit
