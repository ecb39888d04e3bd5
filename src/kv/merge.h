// Merging slots of a head into others. Exact where what is merged is equal: n equal entries weigh as much as one of
// them with a bias of log n.
#pragma once

#include "kv/policy.h"

namespace godwit {

// Slots that hold something new once the others are gone.
struct MergedSlots {
  std::vector<uint32_t> slots;      // ascending, as numbered among the kept ones
  std::vector<float> biases;        // log of the tokens that each stands for
  std::vector<float> keys, values;  // [slots, head_dim]
};

// REQUIRES: the view has keys and values; `kept` ascends and holds every KvMerge::into.
MergedSlots merge_slots(const KvHeadView& head, std::span<const uint32_t> kept, std::span<const KvMerge> merges);

// Those of them that are here, of kept slots of which some are here (not 0), as numbered among these.
MergedSlots merged_here(const MergedSlots& merged, std::span<const char> here);

// After retain(). An error is kExhausted: the back-end has no memory for the numbers.
Result<KvOutcome> write_merged(KvSequence& sequence, int layer, int head, const MergedSlots& merged);

}  // namespace godwit
