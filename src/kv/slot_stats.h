// Numbers about slots that come from Backend::observe(), on the host.
#pragma once

#include <vector>

#include "kv/sequence.h"

namespace godwit {

// Of one head's slots, in their order; see ObserveArgs. What was not asked for is empty.
struct KvSlotStats {
  std::vector<float> mass, square;
  std::vector<int32_t> uses, first_use, last_use, longest_gap;
};

// How such numbers travel: [slots, width], whole ones as the bits of floats, of which nothing but copies are made.
struct KvStatsFields {
  bool window = false;      // squares and uses beside mass
  bool recurrence = false;  // last uses and longest gaps beside mass

  size_t width() const { return 1 + 2 * static_cast<size_t>(window) + 2 * static_cast<size_t>(recurrence); }
  std::vector<float> pack(const KvSlotStats& stats) const;
  KvSlotStats unpack(std::span<const float> numbers) const;
};

struct ObserveWants {
  bool square = false, uses = false, recurrence = false;
  float use_factor = 1;
  Tensor seen_elsewhere = {};  // see ObserveArgs
};

// What the queries of an attention() call that is done attend to. Element i belongs to slot i % page_tokens of page
// i / page_tokens of the plan.
Result<KvSlotStats> observe_plan(Backend& backend, const AttentionArgs& args, const ObserveWants& wants,
                                 Buffer& scratch);

// One more tile of a plan: rows [0, rows) over all slots of a head that are here.
void list_tile(const KvSequence& sequence, int layer, int head, int32_t rows, AttentionPlan& plan);

// `buffer` has room for `bytes`, with its contents if it had already.
Status ensure_bytes(Backend& backend, Buffer& buffer, size_t bytes);

}  // namespace godwit
