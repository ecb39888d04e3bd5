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

struct ObserveWants {
  bool square = false, uses = false, recurrence = false;
  float use_factor = 1;
};

// What the queries of an attention() call that is done attend to. Element i belongs to slot i % page_tokens of page
// i / page_tokens of the plan.
Result<KvSlotStats> observe_plan(Backend& backend, const AttentionArgs& args, const ObserveWants& wants,
                                 Buffer& scratch);

// `buffer` has room for `bytes`, with its contents if it had already.
Status ensure_bytes(Backend& backend, Buffer& buffer, size_t bytes);

}  // namespace godwit
