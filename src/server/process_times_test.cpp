#include "server/process_times.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

namespace godwit::server {
namespace {

// Threads that all want one processor: what one of them has, the others wait for.
TEST(ProcessTimes, SayWhatThreadsHadAndWaitedFor) {
  const ProcessTimes before = process_times();
  // Where the system does not say how long threads waited, neither do we.
  const bool told = std::filesystem::exists("/proc/self/schedstat");
  ASSERT_EQ(before.waited_seconds.has_value(), told);
  std::atomic<bool> done = false;
  std::vector<std::jthread> threads;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      sched_setaffinity(0, sizeof one, &one);
      while (!done) {
      }
    });
  ProcessTimes now = before;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto enough = [&] {
    return now.cpu_seconds >= before.cpu_seconds + 0.1 &&
           (!told || *now.waited_seconds >= *before.waited_seconds + 0.05);
  };
  while (!enough() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    now = process_times();
  }
  done = true;
  EXPECT_TRUE(enough()) << now.cpu_seconds - before.cpu_seconds << " s of processor time";
}

}  // namespace
}  // namespace godwit::server
