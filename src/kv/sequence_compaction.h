// What dropping slots of a head comes to; see sequence_retain.cpp and sequence_reseal.cpp.
#pragma once

#include "kv/sequence.h"

namespace godwit {

struct KvSequence::Compaction {
  static constexpr uint32_t kFresh = UINT32_MAX;
  struct Target {
    uint32_t old_page = kFresh;  // index in the old list
    bool untouched = false;
    bool is_explicit = false;
  };
  std::vector<Target> targets;     // one per new page
  std::vector<bool> stays;         // per old page: in the new list
  std::vector<int32_t> positions;  // of the kept slots
  std::vector<float> biases;
  KvNeed need;
};

}  // namespace godwit
