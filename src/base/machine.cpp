#include "base/machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace godwit {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCpus = 1 << 16;

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::vector<int> read_list(const fs::path& path) {
  return parse_cpu_list(first_line(path));
}

double read_number(const fs::path& path) {
  double value = 0;
  return std::ifstream(path) >> value && std::isfinite(value) && value > 0 ? value : 0;
}

// Where the calling thread may run. The kernel's list may name processors that are not there.
std::vector<int> allowed_cpus(const fs::path& root) {
  constexpr std::string_view kName = "Cpus_allowed_list:";
  std::ifstream status(root / "proc/thread-self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(kName, 0) == 0) return parse_cpu_list(line.substr(kName.size()));
  return {};
}

std::vector<int> ids_of(const fs::path& root) {
  const std::vector<int> allowed = allowed_cpus(root), online = read_list(root / "sys/devices/system/cpu/online");
  std::vector<int> both;
  std::set_intersection(allowed.begin(), allowed.end(), online.begin(), online.end(), std::back_inserter(both));
  if (both.empty()) both = allowed.empty() ? online : allowed;
  if (both.empty()) {  // a system without such files
    both.resize(std::clamp(std::thread::hardware_concurrency(), 1U, static_cast<unsigned>(kMostCpus)));
    std::iota(both.begin(), both.end(), 0);
  }
  return both;
}

std::map<int, int> nodes_of_cpus(const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  std::map<int, int> nodes;
  for (int node : read_list(folder / "online"))
    for (int cpu : read_list(folder / ("node" + std::to_string(node)) / "cpulist")) nodes.emplace(cpu, node);
  return nodes;
}

int core_of(const fs::path& cpu, int id) {
  const std::vector<int> siblings = read_list(cpu / "topology/thread_siblings_list");
  return std::binary_search(siblings.begin(), siblings.end(), id) ? siblings.front() : id;
}

// Intel's hybrid machines name their kinds; others tell a capacity, or the highest clock.
void find_slow(const fs::path& root, std::vector<Cpu>& cpus) {
  const std::vector<int> efficient = read_list(root / "sys/devices/cpu_atom/cpus");
  const fs::path folder = root / "sys/devices/system/cpu";
  std::vector<double> speeds;
  for (const char* measure : {"cpu_capacity", "cpufreq/cpuinfo_max_freq"}) {
    speeds.clear();
    for (const Cpu& cpu : cpus) speeds.push_back(read_number(folder / ("cpu" + std::to_string(cpu.id)) / measure));
    if (std::find(speeds.begin(), speeds.end(), 0) == speeds.end()) break;
    speeds.assign(cpus.size(), 0);  // not known of all: not to be compared
  }
  const double fastest = *std::max_element(speeds.begin(), speeds.end());
  for (size_t i = 0; i < cpus.size(); ++i)
    cpus[i].slow = speeds[i] * 2 < fastest || std::binary_search(efficient.begin(), efficient.end(), cpus[i].id);
  if (std::all_of(cpus.begin(), cpus.end(), [](const Cpu& cpu) { return cpu.slow; }))
    for (Cpu& cpu : cpus) cpu.slow = false;  // the process was given nothing else
}

// The least quota of a group and those above it, in processors; `read` says what one folder has.
template <class Read>
double least_quota(fs::path group, const std::string& below, Read&& read) {
  double least = read(group);
  for (const fs::path& name : fs::path(below).relative_path())
    if (const double quota = read(group /= name); quota > 0 && (least == 0 || quota < least)) least = quota;
  return least;
}

double quota_v2(const fs::path& group) {
  std::istringstream line(first_line(group / "cpu.max"));  // "max 100000" where there is no limit
  double quota = 0, period = 0;
  return line >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

double quota_v1(const fs::path& group) {  // -1: no limit
  const double quota = read_number(group / "cpu.cfs_quota_us"), period = read_number(group / "cpu.cfs_period_us");
  return quota > 0 && period > 0 ? quota / period : 0;
}

double read_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  double least = 0;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", "4:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    double quota = 0;
    if (controllers.empty())
      quota = least_quota(mounts, path, quota_v2);
    else if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      quota = least_quota(mounts / controllers, path, quota_v1);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

int within(double quota, size_t count) {
  const int whole = static_cast<int>(std::min<size_t>(count, kMostCpus));
  return std::max(1, quota > 0 && quota < whole ? static_cast<int>(std::floor(quota + 0.5)) : whole);
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::set<int> ids;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream range(part);
    int first = -1, last = -1;
    if (!(range >> first)) return {};
    last = first;
    if (char dash = 0; range >> dash && (dash != '-' || !(range >> last))) return {};
    if (std::string rest; first < 0 || last < first || last >= kMostCpus || range >> rest) return {};
    for (int id = first; id <= last; ++id) ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

int Machine::usable() const {
  return within(quota, cpus.size());
}

int Machine::best_threads() const {
  std::set<int> cores;
  for (const Cpu& cpu : cpus)
    if (!cpu.slow) cores.insert(cpu.core);
  return std::min(within(quota, cores.size()), kMostThreads);
}

Machine read_machine(const fs::path& root) {
  const std::map<int, int> nodes = nodes_of_cpus(root);
  Machine machine{.cpus = {}, .quota = read_quota(root)};
  for (int id : ids_of(root)) {
    const auto node = nodes.find(id);
    machine.cpus.push_back({.id = id,
                            .node = node == nodes.end() ? 0 : node->second,
                            .core = core_of(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(id)), id)});
  }
  find_slow(root, machine.cpus);
  return machine;
}

}  // namespace godwit
