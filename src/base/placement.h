// Where the threads of a pool run. Threads are kept to sets of processors, not each to one: inside a set the system
// moves them away from whoever else is there. A machine with one memory node and cores of one kind needs no sets.
//
// - As many threads as there are fast cores, or fewer, stay off the slow ones.
// - Threads that fit the cores of one node stay there: the caller's own if it is large enough, else the largest. Their
//   memory is near them, since they touch it first.
// - More are dealt to the nodes by their cores, and memory that all of them read is spread over these nodes.
#pragma once

#include <string>
#include <vector>

#include "base/machine.h"

namespace godwit {

struct Placement {
  int threads = 1;
  std::vector<std::vector<int>> cpus{};  // of each thread, the caller's first; empty: wherever the process may run
  std::vector<int> nodes{};              // over which to spread what all read; empty: there is no need
  bool crowded = false;                  // more threads than can run at once
  std::string text{};                    // where, in words; empty: nothing to say
};

// `threads` 0 takes the machine's best number. `here` is a processor that the caller runs on.
Placement place_threads(const Machine& machine, int threads, int here);
Placement place_threads(int threads);  // on this machine

// Keeps the calling thread to these processors. False where the system does not allow it.
bool keep_thread_on(const std::vector<int>& cpus);

}  // namespace godwit
