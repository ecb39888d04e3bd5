// What a sequence takes of the KV memory, for those who watch.
#pragma once

#include <cstdint>

#include "kv/sequence.h"

namespace godwit {

struct KvUse {
  uint64_t bytes = 0;   // of its pages, shared ones too
  double retained = 1;  // share of its tokens' entries, over all heads, that are still there
};

// O(heads), unlike KvSequence::bytes(): it may be asked for every step.
inline KvUse kv_use(const KvSequence& sequence) {
  const KvShape& shape = sequence.shape();
  size_t bytes = 0, slots = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      bytes += sequence.pages(layer, head) * sequence.pool().page_bytes(layer, false);
      slots += sequence.slots(layer, head);
    }
  }
  const double all = static_cast<double>(sequence.next_position()) * shape.layers * shape.kv_heads;
  return {bytes, all > 0 ? static_cast<double>(slots) / all : 1};
}

}  // namespace godwit
