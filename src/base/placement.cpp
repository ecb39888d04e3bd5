#include "base/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>
#include <sched.h>

namespace godwit {
namespace {

struct Node {
  std::vector<int> cpus;
  std::set<int> cores;
};
using Nodes = std::map<int, Node>;

Nodes nodes_of(const Machine& machine, bool slow_too) {
  Nodes nodes;
  for (const Cpu& cpu : machine.cpus) {
    if (cpu.slow && !slow_too) continue;
    nodes[cpu.node].cpus.push_back(cpu.id);
    nodes[cpu.node].cores.insert(cpu.core);
  }
  return nodes;
}

size_t cores_of(const Nodes& nodes) {
  size_t cores = 0;
  for (const auto& [id, node] : nodes) cores += node.cores.size();
  return cores;
}

// The node for that many threads, or the end.
Nodes::const_iterator node_for(const Nodes& nodes, size_t threads, int here) {
  auto best = nodes.end();
  for (auto node = nodes.begin(); node != nodes.end(); ++node) {
    if (node->second.cores.size() < threads) continue;
    if (std::count(node->second.cpus.begin(), node->second.cpus.end(), here) > 0) return node;
    if (best == nodes.end() || node->second.cores.size() > best->second.cores.size()) best = node;
  }
  return best;
}

// Each node has as many of the threads as it has of the cores.
void spread(const Nodes& nodes, Placement& placement) {
  const auto threads = static_cast<size_t>(placement.threads);
  const size_t cores = cores_of(nodes);
  size_t cores_before = 0;
  for (const auto& [id, node] : nodes) {
    cores_before += node.cores.size();
    placement.cpus.resize(cores_before * threads / cores, node.cpus);
    placement.nodes.push_back(id);
  }
}

}  // namespace

Placement place_threads(const Machine& machine, int threads, int here) {
  Placement placement;
  placement.threads = threads > 0 ? threads : machine.best_threads();
  placement.crowded = placement.threads > machine.usable();
  const auto count = static_cast<size_t>(placement.threads);
  const Nodes all = nodes_of(machine, true), fast = nodes_of(machine, false);
  const bool avoid_slow = cores_of(fast) < cores_of(all) && count <= cores_of(fast);
  const Nodes& nodes = avoid_slow ? fast : all;
  if (avoid_slow) placement.text = "on fast cores";
  if (nodes.size() > 1) {
    const auto one = node_for(nodes, count, here);
    if (one == nodes.end()) {
      spread(nodes, placement);
      placement.text += fmt::format("{}over nodes {}", avoid_slow ? " " : "", fmt::join(placement.nodes, ", "));
      return placement;
    }
    placement.cpus.assign(count, one->second.cpus);
    placement.text += fmt::format("{}on node {}", avoid_slow ? ", " : "", one->first);
  } else if (avoid_slow) {
    placement.cpus.assign(count, nodes.begin()->second.cpus);
  }
  return placement;
}

Placement place_threads(int threads) {
  return place_threads(read_machine(), threads, sched_getcpu());
}

bool keep_thread_on(const std::vector<int>& cpus) {
  const int most = *std::max_element(cpus.begin(), cpus.end()) + 1;
  const size_t bytes = CPU_ALLOC_SIZE(most);
  cpu_set_t* set = CPU_ALLOC(most);
  if (set == nullptr) return false;
  CPU_ZERO_S(bytes, set);
  for (int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const bool kept = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return kept;
}

}  // namespace godwit
