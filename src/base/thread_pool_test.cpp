#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <numeric>

#include <gtest/gtest.h>

namespace godwit {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (int count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.parallel_for(count, [&](int64_t i, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        hits[static_cast<size_t>(i)]++;
      });
      for (auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPool, RangesRunEveryItemOnceAndInOrder) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int count : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      std::vector<std::vector<int64_t>> seen(static_cast<size_t>(threads));
      pool.parallel_ranges(count, [&](int64_t i, int thread) {
        hits[static_cast<size_t>(i)]++;
        seen[static_cast<size_t>(thread)].push_back(i);
      });
      for (auto& hit : hits) EXPECT_EQ(hit, 1);
      for (const auto& items : seen) {  // a range of its own, then what others left: it turns back at most that often
        int turns = 0;
        for (size_t i = 1; i < items.size(); ++i) turns += items[i] < items[i - 1];
        EXPECT_LT(turns, threads);
      }
    }
  }
}

// Threads begin far from each other, and who has nothing left takes over from one that is stuck.
TEST(ThreadPool, RangesBeginApartAndAreShared) {
  ThreadPool pool(2);
  std::atomic<int> left = 100;
  std::vector<int64_t> first(2, -1);
  pool.parallel_ranges(100, [&](int64_t i, int thread) {
    int64_t& begin = first[static_cast<size_t>(thread)];
    if (begin < 0) begin = i;
    --left;
    // The worker waits in its first item until the caller has done all others.
    while (thread == 1 && begin == i && left > 0) std::this_thread::yield();
  });
  EXPECT_EQ(left, 0);
  EXPECT_EQ(first[0], 0);
  if (first[1] >= 0) {  // where it came in time
    EXPECT_GE(first[1], 50);
  }
}

TEST(ThreadPool, ServesLoopsFromSeveralThreads) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) pool.parallel_for(100, [&](int64_t i) { sum += i; });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 50 * 4950);
}

// Loops that find the workers watching, falling asleep and asleep, with fewer and more items than threads, on pools
// with and without a core for everyone. What the last loop wrote without atomics is seen by the caller and by the next
// loop.
TEST(ThreadPool, EveryLoopIsWholeWhateverTheWorkersWereDoing) {
  for (int threads : {2, read_machine().usable(), read_machine().usable() + 3}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      const int count = 2 + round % 7;
      std::vector<int> values(static_cast<size_t>(count), 0);
      for (int loop = 0; loop < 3; ++loop)
        pool.parallel_for(count, [&](int64_t i) { values[static_cast<size_t>(count - 1 - i)] += loop + 1; });
      for (int value : values) ASSERT_EQ(value, 6);
      if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
    }
  }
}

// Workers take part: two items that wait for each other finish.
TEST(ThreadPool, ItemsRunAtTheSameTime) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> met = 0;
    pool.parallel_for(2, [&](int64_t) {
      met.fetch_add(1);
      met.notify_all();
      for (int seen = met.load(); seen < 2; seen = met.load()) met.wait(seen);
    });
    EXPECT_EQ(met, 2);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
  }
}

// Workers stay where they were put, and the caller is left alone.
TEST(ThreadPool, KeepsWorkersOnTheirCpus) {
  const std::vector<Cpu> cpus = read_machine().cpus;
  const std::vector<int> last = {cpus.back().id};
  ThreadPool pool(Placement{.threads = 3, .cpus = {{cpus[0].id}, last, last}, .crowded = true});
  std::atomic<int> met = 0;
  std::vector<std::vector<int>> found(3);
  pool.parallel_for(3, [&](int64_t, int thread) {
    for (const Cpu& cpu : read_machine().cpus) found[static_cast<size_t>(thread)].push_back(cpu.id);
    met.fetch_add(1);  // one item for each thread
    met.notify_all();
    for (int seen = met.load(); seen < 3; seen = met.load()) met.wait(seen);
  });
  EXPECT_EQ(found[0].size(), cpus.size());
  EXPECT_EQ(found[1], last);
  EXPECT_EQ(found[2], last);
}

}  // namespace
}  // namespace godwit
