// How much of a cache may stay, and when that is looked at.
//
// KvBudget as text is AMOUNT[:split=head|layer|all].
// - AMOUNT: 4096, slots per head on average; 25%, that share of the tokens so far; 64MiB, bytes of the whole sequence,
//   pages and what goes with them.
// - split: head, every head may have the same number of slots, and what one has no use for goes to others; layer, the
//   heads of a layer compete; all, all heads do.
// KvTrigger as text is prefill, after a prompt; chunk, also after every chunk of one and as many generated tokens; or
// N, after N tokens, computed in whatever way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kv/sequence.h"

namespace godwit {

struct KvBudget {
  enum class Unit { kSlots, kShare, kBytes };
  enum class Split { kHead, kLayer, kAll };
  Unit unit = Unit::kShare;
  double share = 1;     // kShare
  uint64_t amount = 0;  // kSlots: slots; kBytes: bytes
  Split split = Split::kHead;

  static Result<KvBudget> parse(std::string_view text);

  // Slots that one head may keep on average once `tokens` tokens have been seen, at least 1. Bytes give whole pages.
  size_t slots_per_head(int32_t tokens, const KvShape& shape, const KvFormat& format) const;
  // Refuses bytes where the pages of layers differ in size: it would be another number of slots for each.
  Status check_pages(bool equal) const;
  // Whatever the length. Amounts in different units are compared where a length is known.
  bool is_more_than(const KvBudget& other) const {
    return unit == other.unit && (unit == Unit::kShare ? share > other.share : amount > other.amount);
  }
  // What a head's number of slots is rounded down to, so that bytes hold whatever the split.
  size_t granule(const KvFormat& format) const {
    return unit == Unit::kBytes ? static_cast<size_t>(format.page_tokens) : 1;
  }
};

// How much of a sequence is ever in memory at once: so many slots per head on average, and a share of its tokens.
struct KvResidence {
  double share = 1;
  uint64_t slots = 0;

  bool whole() const { return share >= 1; }
  uint64_t most_slots(uint64_t tokens) const {
    return whole() ? tokens : std::min(tokens, slots + static_cast<uint64_t>(share * static_cast<double>(tokens)));
  }
};

struct KvTrigger {
  bool prompt_end = false;
  int every = 0;  // tokens; 0: never

  static Result<KvTrigger> parse(std::string_view text, int prefill_chunk);
};

// "4096", "512KiB", "2GiB" to bytes; 0 where the text is none.
uint64_t bytes_from_text(std::string_view text);

}  // namespace godwit
