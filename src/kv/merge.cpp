#include "kv/merge.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace godwit {

MergedSlots merge_slots(const KvHeadView& head, std::span<const uint32_t> kept, std::span<const KvMerge> merges) {
  std::map<uint32_t, std::vector<KvMerge>> groups;  // by the slot that they go into
  for (const KvMerge& merge : merges) groups[merge.into].push_back(merge);
  MergedSlots merged;
  const size_t dim = head.head_dim;
  for (const auto& [into, members] : groups) {
    const auto place = std::lower_bound(kept.begin(), kept.end(), into);
    GODWIT_CHECK(place != kept.end() && *place == into, "what others are merged into must stay");
    if (std::none_of(members.begin(), members.end(), [slot = into](const KvMerge& m) { return m.from != slot; }))
      continue;
    float count = head.counts[into], weights = 0;
    std::vector<float> key(dim), value(dim);
    for (const KvMerge& member : members) {
      if (member.from != into) count += head.counts[member.from];
      weights += member.weight;
      for (size_t d = 0; d < dim; ++d) {
        key[d] += member.weight * head.key(member.from)[d];
        value[d] += member.weight * head.value(member.from)[d];
      }
    }
    GODWIT_CHECK(weights > 0, "a merged slot has no weight");
    for (size_t d = 0; d < dim; ++d) key[d] /= weights, value[d] /= weights;
    merged.slots.push_back(static_cast<uint32_t>(place - kept.begin()));
    merged.biases.push_back(std::log(count));
    merged.keys.insert(merged.keys.end(), key.begin(), key.end());
    merged.values.insert(merged.values.end(), value.begin(), value.end());
  }
  return merged;
}

MergedSlots merged_here(const MergedSlots& merged, std::span<const char> here) {
  MergedSlots own;
  const size_t dim = merged.slots.empty() ? 0 : merged.keys.size() / merged.slots.size();
  const auto numbers = [&](const std::vector<float>& all, size_t i) { return std::span(all).subspan(i * dim, dim); };
  uint32_t slot = 0, before = 0;  // of all kept ones, and how many before it are here
  for (size_t i = 0; i < merged.slots.size(); ++i) {
    for (; slot < merged.slots[i]; ++slot) before += here[slot] != 0 ? 1 : 0;
    if (here[slot] == 0) continue;
    own.slots.push_back(before);
    own.biases.push_back(merged.biases[i]);
    const auto key = numbers(merged.keys, i), value = numbers(merged.values, i);
    own.keys.insert(own.keys.end(), key.begin(), key.end());
    own.values.insert(own.values.end(), value.begin(), value.end());
  }
  return own;
}

Result<KvOutcome> write_merged(KvSequence& sequence, int layer, int head, const MergedSlots& merged) {
  if (merged.slots.empty()) return KvOutcome();
  // New biases give shared pages a copy of their own, which may then be written.
  if (KvOutcome outcome = sequence.set_biases(layer, head, merged.slots, merged.biases); !outcome) return outcome;
  GODWIT_TRY(sequence.rewrite(layer, head, merged.slots, merged.keys, merged.values));
  return KvOutcome();
}

}  // namespace godwit
