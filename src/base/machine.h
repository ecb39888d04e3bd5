// The processors that this process may use: which there are, on which memory node, of which kind, and how much of
// their time control groups leave it. Read from files below a root, which is "/" outside tests; what cannot be read or
// makes no sense counts as absent, so that any system gives an answer.
#pragma once

#include <filesystem>
#include <vector>

namespace godwit {

struct Cpu {
  int id = 0;
  int node = 0;       // of memory
  int core = 0;       // the lowest id of the hardware threads that share its units
  bool slow = false;  // of a kind with less than half the speed of the fastest here, or named an efficiency core
};

// What a pool may have, and nobody needs more.
inline constexpr int kMostThreads = 1024;

struct Machine {
  std::vector<Cpu> cpus;  // online, and the calling thread may run there; by id, at least one
  double quota = 0;       // processors' worth of time by control groups (v1 and v2); 0: no limit

  int usable() const;  // how many threads can run at once, at least 1
  // How many compute best: one for each core that is not slow, within the quota.
  int best_threads() const;
};

Machine read_machine(const std::filesystem::path& root = "/");

// "0-3,8" as the kernel writes sets of processors; empty where it is something else.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace godwit
