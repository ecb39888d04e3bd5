#include "backend/cpu/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

namespace godwit::cpu {
namespace {

namespace fs = std::filesystem;

// The number after a name at the beginning of a line: "MemTotal:  8 kB", "active_file 4096".
std::optional<size_t> named_number(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(wanted, 0) != 0) continue;
    const size_t digit = line.find_first_not_of(" \t", wanted.size());
    if (digit == std::string::npos) return std::nullopt;
    size_t value = 0;
    for (size_t i = digit; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i)
      value = value * 10 + static_cast<size_t>(line[i] - '0');
    return value;
  }
  return std::nullopt;
}

// A version of control groups: where a process finds its own, and what the files say.
struct GroupFiles {
  const char* entry;  // begins the rest of a line of /proc/self/cgroup, after the number
  const char* mount;
  const char *limit, *used, *active, *inactive;
};
constexpr GroupFiles kVersions[] = {
    {"::/", "", "memory.max", "memory.current", "active_file ", "inactive_file "},
    {":memory:/", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ",
     "total_inactive_file "},
};

// What a control group leaves of its own limit; the most where it has none ("max", or no such file).
size_t left_in_group(const GroupFiles& files, const fs::path& group) {
  size_t limit = 0, used = 0;
  if (!(std::ifstream(group / files.limit) >> limit)) return SIZE_MAX;
  if (!(std::ifstream(group / files.used) >> used)) return limit;
  for (const char* cache : {files.active, files.inactive})
    used -= std::min(used, named_number(group / "memory.stat", cache).value_or(0));
  return limit - std::min(limit, used);
}

}  // namespace

size_t available_memory_bytes(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  auto kib = named_number(meminfo, "MemAvailable:");
  if (!kib) kib = named_number(meminfo, "MemTotal:");
  size_t bytes = kib ? *kib * 1024 : SIZE_MAX;

  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    line.erase(0, line.find(':'));
    for (const GroupFiles& files : kVersions) {
      if (line.rfind(files.entry, 0) != 0) continue;
      fs::path group = root / "sys/fs/cgroup" / files.mount;
      bytes = std::min(bytes, left_in_group(files, group));
      for (const fs::path& name : fs::path(line.substr(std::strlen(files.entry))))
        bytes = std::min(bytes, left_in_group(files, group /= name));
    }
  }
  return bytes == SIZE_MAX ? 0 : std::max<size_t>(bytes, 1);  // nothing left is not unknown
}

}  // namespace godwit::cpu
