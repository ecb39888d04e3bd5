// Where a process is, so that another one of its host finds it, or finds that it has ended.
#pragma once

#include <cstdint>

namespace godwit::dist {

// Plain data: it travels as it is.
struct Whereabouts {
  char boot[40] = {};          // of the machine's start: no two hosts have the same
  uint64_t process_space = 0;  // what its number is a number in
  int32_t process = 0;
};

Whereabouts own_whereabouts();
// Whether its number means the same process here.
bool is_within_reach(const Whereabouts& process);
// It was within reach, and is no more. Of what is elsewhere nothing is known.
bool has_ended(const Whereabouts& process);

}  // namespace godwit::dist
