#include "base/machine.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/placement.h"

namespace godwit {
namespace {

using Ids = std::vector<int>;

// A machine in a folder.
class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    std::string name = (std::filesystem::temp_directory_path() / "godwit_machine_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  void cpu(int id, const std::string& file, const std::string& text) {
    write("sys/devices/system/cpu/cpu" + std::to_string(id) + "/" + file, text);
  }
  void online(const std::string& list) { write("sys/devices/system/cpu/online", list); }
  void allow(const std::string& list) { write("proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t" + list); }
  void nodes(const std::vector<std::string>& lists) {
    write("sys/devices/system/node/online", "0-" + std::to_string(lists.size() - 1));
    for (size_t i = 0; i < lists.size(); ++i)
      write("sys/devices/system/node/node" + std::to_string(i) + "/cpulist", lists[i]);
  }
  // Two nodes of `cores` cores with two hardware threads each, which are `2 * cores` apart.
  void two_nodes(int cores) {
    const int all = 2 * cores;
    online("0-" + std::to_string(2 * all - 1));
    allow("0-1023");
    auto range = [](int first, int count) { return std::to_string(first) + "-" + std::to_string(first + count - 1); };
    nodes({range(0, cores) + "," + range(all, cores), range(cores, cores) + "," + range(all + cores, cores)});
    for (int id = 0; id < 2 * all; ++id)
      cpu(id, "topology/thread_siblings_list", std::to_string(id % all) + "," + std::to_string(id % all + all));
  }

  Machine machine() const { return read_machine(root_); }
  static Ids ids(const Machine& machine) {
    Ids found;
    for (const Cpu& cpu : machine.cpus) found.push_back(cpu.id);
    return found;
  }
  static Ids slow(const Machine& machine) {
    Ids found;
    for (const Cpu& cpu : machine.cpus)
      if (cpu.slow) found.push_back(cpu.id);
    return found;
  }

  std::filesystem::path root_;
};

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (Ids{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list(" 5\n"), Ids{5});
  EXPECT_EQ(parse_cpu_list("3,1-2"), (Ids{1, 2, 3}));
  for (const char* bad :
       {"", "x", "1-", "-2", "3-1", "1,,2", "0-4294967295", "0-99999999", "1 2", "1-2-3", "0x3", "1;2"})
    EXPECT_EQ(parse_cpu_list(bad), Ids{}) << bad;
}

TEST_F(MachineTest, HasTheCpusThatAreOnlineAndAllowed) {
  online("0-2,4-7");
  allow("2-5,900");
  EXPECT_EQ(ids(machine()), (Ids{2, 4, 5}));
  EXPECT_EQ(machine().usable(), 3);
  EXPECT_EQ(machine().best_threads(), 3);
}

TEST_F(MachineTest, CountsCoresNotHardwareThreads) {
  two_nodes(4);
  EXPECT_EQ(machine().cpus.size(), 16U);
  EXPECT_EQ(machine().usable(), 16);
  EXPECT_EQ(machine().best_threads(), 8);
  EXPECT_EQ(machine().cpus[9].core, 1);
  EXPECT_EQ(machine().cpus[9].node, 0);
  EXPECT_EQ(machine().cpus[13].node, 1);
  allow("1,9");  // both threads of one core
  EXPECT_EQ(machine().usable(), 2);
  EXPECT_EQ(machine().best_threads(), 1);
}

TEST_F(MachineTest, KnowsSlowCores) {
  online("0-5");
  allow("0-5");
  write("sys/devices/cpu_core/cpus", "0-3");
  write("sys/devices/cpu_atom/cpus", "4-5");
  EXPECT_EQ(slow(machine()), (Ids{4, 5})) << "by name";
  EXPECT_EQ(machine().best_threads(), 4);
  allow("4-5");
  EXPECT_EQ(slow(machine()), Ids{}) << "there is nothing faster for this process";
  EXPECT_EQ(machine().best_threads(), 2);

  std::filesystem::remove(root_ / "sys/devices/cpu_atom/cpus");
  allow("0-5");
  for (int id = 0; id < 6; ++id) cpu(id, "cpufreq/cpuinfo_max_freq", id < 3 ? "3000000" : "1200000");
  EXPECT_EQ(slow(machine()), (Ids{3, 4, 5})) << "by clock";
  for (int id = 0; id < 6; ++id) cpu(id, "cpu_capacity", id == 0 ? "1024" : id < 4 ? "800" : "300");
  EXPECT_EQ(slow(machine()), (Ids{4, 5})) << "by capacity; the middle kind is not slow";
  cpu(2, "cpu_capacity", "what?");
  EXPECT_EQ(slow(machine()), (Ids{3, 4, 5})) << "a capacity that not all have compares nothing; the clock does";
}

TEST_F(MachineTest, QuotasOfBothVersionsAndOfGroupsAboveLimit) {
  online("0-15");
  allow("0-15");
  write("proc/self/cgroup", "4:cpu,cpuacct:/a\n2:cpuset:/a/b\n0::/user/shell");
  EXPECT_EQ(machine().usable(), 16);
  write("sys/fs/cgroup/user/shell/cpu.max", "max 100000");
  EXPECT_EQ(machine().usable(), 16);
  write("sys/fs/cgroup/user/shell/cpu.max", "800000 100000");
  EXPECT_EQ(machine().usable(), 8);
  write("sys/fs/cgroup/user/cpu.max", "550000 100000");
  EXPECT_EQ(machine().usable(), 6) << "rounded";
  EXPECT_EQ(machine().best_threads(), 6);
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(machine().usable(), 6);
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "150000");
  EXPECT_EQ(machine().usable(), 3);
  write("sys/fs/cgroup/cpu.max", "1000 100000");  // a container sees its own group as the root
  EXPECT_EQ(machine().usable(), 1);
}

TEST_F(MachineTest, GarbageIsNoMachineButAnAnswer) {
  EXPECT_GE(machine().cpus.size(), 1U) << "no files at all";
  online("0-7");
  allow("0-7");
  nodes({"what?", "0-7"});
  cpu(1, "topology/thread_siblings_list", "5-6");
  cpu(2, "topology/thread_siblings_list", "\xff\xfe");
  write("proc/self/cgroup", "nonsense\n::\n7:cpu:/../../x\n0::");
  write("sys/fs/cgroup/cpu.max", "-5 0");
  write("sys/devices/cpu_atom/cpus", "0-99999999");
  EXPECT_EQ(machine().usable(), 8);
  EXPECT_EQ(machine().best_threads(), 8);
  EXPECT_EQ(place_threads(machine(), 0, 0).threads, 8);
  allow("64-65");
  EXPECT_EQ(ids(machine()), (Ids{64, 65})) << "allowed, and offline as it seems: the affinity is what counts";
}

TEST_F(MachineTest, OneNodeOfOneKindNeedsNoPlaces) {
  online("0-3");
  allow("0-3");
  for (int threads : {0, 1, 4, 9}) {
    const Placement placement = place_threads(machine(), threads, 0);
    EXPECT_EQ(placement.threads, threads == 0 ? 4 : threads);
    EXPECT_TRUE(placement.cpus.empty() && placement.nodes.empty() && placement.text.empty());
    EXPECT_EQ(placement.crowded, threads == 9);
  }
}

TEST_F(MachineTest, ThreadsStayOnOneNodeIfTheyFit) {
  two_nodes(4);
  const Ids first = {0, 1, 2, 3, 8, 9, 10, 11}, second = {4, 5, 6, 7, 12, 13, 14, 15};
  EXPECT_EQ(place_threads(machine(), 4, 13).cpus, std::vector<Ids>(4, second)) << "where the caller is";
  EXPECT_EQ(place_threads(machine(), 3, 2).cpus, std::vector<Ids>(3, first));
  EXPECT_EQ(place_threads(machine(), 3, 2).text, "on node 0");
  EXPECT_TRUE(place_threads(machine(), 3, 2).nodes.empty());
  allow("3-7");
  EXPECT_EQ(place_threads(machine(), 2, 3).cpus, (std::vector<Ids>(2, {4, 5, 6, 7}))) << "the caller's is too small";
}

TEST_F(MachineTest, MoreThreadsAreSpreadByCores) {
  two_nodes(4);
  Placement placement = place_threads(machine(), 0, 0);
  ASSERT_EQ(placement.cpus.size(), 8U);
  EXPECT_EQ(placement.cpus[3].front(), 0);
  EXPECT_EQ(placement.cpus[4].front(), 4);
  EXPECT_EQ(placement.nodes, (Ids{0, 1}));
  EXPECT_EQ(placement.text, "over nodes 0, 1");
  EXPECT_FALSE(placement.crowded);
  placement = place_threads(machine(), 40, 0);
  EXPECT_EQ(placement.cpus.size(), 40U);
  EXPECT_TRUE(placement.crowded);
  allow("3-7");  // one core and four
  placement = place_threads(machine(), 5, 3);
  EXPECT_EQ(placement.cpus, (std::vector<Ids>{{3}, {4, 5, 6, 7}, {4, 5, 6, 7}, {4, 5, 6, 7}, {4, 5, 6, 7}}));
}

TEST_F(MachineTest, ThreadsStayOffSlowCoresWhileOthersAreLeft) {
  online("0-5");
  allow("0-5");
  write("sys/devices/cpu_atom/cpus", "0-1");
  EXPECT_EQ(place_threads(machine(), 0, 0).cpus, std::vector<Ids>(4, {2, 3, 4, 5}));
  EXPECT_EQ(place_threads(machine(), 2, 0).text, "on fast cores");
  EXPECT_TRUE(place_threads(machine(), 6, 0).cpus.empty()) << "all are wanted";
}

TEST(MachineHere, IsKnown) {
  const Machine machine = read_machine();
  EXPECT_GE(machine.usable(), machine.best_threads());
  EXPECT_GE(machine.best_threads(), 1);
  EXPECT_EQ(place_threads(0).threads, machine.best_threads());
}

}  // namespace
}  // namespace godwit
