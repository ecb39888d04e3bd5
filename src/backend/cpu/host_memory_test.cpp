#include "backend/cpu/host_memory.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include <gtest/gtest.h>

namespace godwit::cpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A machine in a folder: 800 of its 1000 MiB are available; the process is in the group /user/shell.
class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    std::string name = (std::filesystem::temp_directory_path() / "godwit_memory_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    write("proc/meminfo", "MemTotal:        1024000 kB\nMemFree:   1024 kB\nMemAvailable:     819200 kB\n");
    write("proc/self/cgroup", "4:memory:/other\n0::/user/shell\n");
  }
  ~HostMemory() override { std::filesystem::remove_all(root_); }

  void write(std::string_view file, std::string_view text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void group(const std::string& path, const std::string& max_bytes, size_t used_mib, size_t cached_mib = 0) {
    const std::string folder = "sys/fs/cgroup" + path;
    write(folder + "/memory.max", max_bytes + "\n");
    write(folder + "/memory.current", std::to_string(used_mib * kMiB) + "\n");
    write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cached_mib * kMiB) + "\nactive_file 0\n");
  }
  size_t mib() const { return available_memory_bytes(root_) / kMiB; }

  std::filesystem::path root_;
};

TEST_F(HostMemory, IsWhatTheSystemCallsAvailable) {
  EXPECT_EQ(mib(), 800U);
  write("proc/meminfo", "MemTotal:        1024000 kB\n");
  EXPECT_EQ(mib(), 1000U) << "old kernels name only the total";
  std::filesystem::remove(root_ / "proc/meminfo");
  EXPECT_EQ(available_memory_bytes(root_), 0U) << "unknown";
}

TEST_F(HostMemory, IsLessWhereTheProcessesGroupLeavesLess) {
  group("/user/shell", std::to_string(500 * kMiB), 100);
  EXPECT_EQ(mib(), 400U);
  group("/user/shell", std::to_string(5000 * kMiB), 100);
  EXPECT_EQ(mib(), 800U) << "a limit beyond the machine";
  group("/user/shell", "max", 100);
  EXPECT_EQ(mib(), 800U) << "no limit";
  group("/user/shell", std::to_string(50 * kMiB), 60);
  EXPECT_EQ(available_memory_bytes(root_), 1U) << "over its limit, which is not unknown";
}

TEST_F(HostMemory, GroupsAboveCountAndOthersDoNot) {
  group("/user/shell", std::to_string(500 * kMiB), 100);
  group("/user", std::to_string(600 * kMiB), 300);
  group("/other", std::to_string(20 * kMiB), 0);
  EXPECT_EQ(mib(), 300U);
  group("", std::to_string(200 * kMiB), 10);  // a container sees its own group as the root
  EXPECT_EQ(mib(), 190U);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(mib(), 190U);
  group("", "max", 10);
  EXPECT_EQ(mib(), 800U);
}

TEST_F(HostMemory, GroupsOfTheFirstVersionCount) {
  const std::string folder = "sys/fs/cgroup/memory/other";
  write(folder + "/memory.limit_in_bytes", "9223372036854771712\n");
  write(folder + "/memory.usage_in_bytes", std::to_string(300 * kMiB) + "\n");
  write(folder + "/memory.stat", "inactive_file 0\ntotal_inactive_file " + std::to_string(100 * kMiB) + "\n");
  EXPECT_EQ(mib(), 800U) << "no limit";
  write(folder + "/memory.limit_in_bytes", std::to_string(500 * kMiB) + "\n");
  EXPECT_EQ(mib(), 300U);
  write("proc/self/cgroup", "5:cpu:/other\n");
  EXPECT_EQ(mib(), 800U) << "not a group of memory";
}

TEST_F(HostMemory, CachedFilesAreFree) {
  group("/user/shell", std::to_string(500 * kMiB), 450, 400);
  EXPECT_EQ(mib(), 450U);
}

TEST(HostMemoryHere, IsKnown) {
  EXPECT_GT(available_memory_bytes(), kMiB);
}

}  // namespace
}  // namespace godwit::cpu
