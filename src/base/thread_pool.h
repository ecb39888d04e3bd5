// A fixed set of worker threads that run one parallel loop at a time.
//
// parallel_for(n, fn) calls fn(i) once for every i in [0, n) on the workers and the calling thread and returns when all
// are done. Items are handed out one by one in order, so unequal items balance themselves; which thread runs an item is
// not defined, and no result may depend on it. fn must not throw. Calls from several threads are served one after the
// other; calling it from inside fn is a bug.
//
// parallel_ranges(n, fn) gives each thread a range of its own, which it walks in order, and who is done helps the
// others: for items that lie behind each other in memory, so that what is asked for ahead of time is what comes next.
//
// Loops are short (decoding one token takes some hundred), so a worker that runs out of work first watches for the next
// loop for some microseconds and only then sleeps, and so does the caller for the last worker; a pool with more threads
// than usable cores does not watch, since that would take a core from someone who works. Nobody waits for a worker that
// has not taken part: a late one finds the loop closed.
//
// Workers run where placement.h puts them; the calling thread belongs to whoever calls and stays where it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/placement.h"
#include "base/result.h"

namespace godwit {

// An error where a user's number of threads makes no sense: 0 (all cores) to 1024 do.
Status check_threads(int threads);
// What to tell whoever wanted a pool that could not be had.
Error refused_threads(const std::system_error& error);

class ThreadPool {
 public:
  // `threads` counts the caller; 0 is this machine's best number. Throws std::system_error where the system does not
  // let the process have so many.
  explicit ThreadPool(int threads = 0) : ThreadPool(place_threads(threads)) {}
  explicit ThreadPool(Placement placement);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return placement_.threads; }
  const Placement& placement() const { return placement_; }

  // fn: void(int64_t index) or void(int64_t index, int thread) with thread in [0, threads()).
  template <class Fn>
  void parallel_for(int64_t count, Fn&& fn) {
    run(count, 1, fn);
  }
  template <class Fn>
  void parallel_ranges(int64_t count, Fn&& fn) {
    run(count, threads(), fn);
  }

 private:
  using Call = void (*)(void* context, int64_t index, int thread);
  // What is left of a range of items.
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  template <class Fn>
  void run(int64_t count, int ranges, Fn& fn) {
    run(
        count, ranges,
        [](void* context, int64_t index, int thread) {
          if constexpr (std::is_invocable_v<Fn&, int64_t, int>) {
            (*static_cast<Fn*>(context))(index, thread);
          } else {
            (void)thread;
            (*static_cast<Fn*>(context))(index);
          }
        },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }
  void run(int64_t count, int ranges, Call call, void* context);
  void end();
  void work(int thread);
  void take_items(int thread);
  bool take_seat(uint32_t& seen);
  void leave_seat();
  uint32_t next_word(uint32_t word);
  void wait_for_workers();

  const Placement placement_;
  std::vector<std::thread> workers_;
  std::mutex one_loop_;  // held by the thread whose loop is running

  // The loop at hand; written while no worker is inside.
  Call call_ = nullptr;
  void* context_ = nullptr;
  int ranges_in_use_ = 0;
  std::vector<Range> ranges_;  // one per thread

  // Generation, free seats and workers inside (see thread_pool.cpp).
  alignas(64) std::atomic<uint32_t> word_{0};
  std::atomic<int> asleep_{0};
  std::atomic<uint32_t> emptied_{0};  // counts the times when the last worker left a closed loop
  std::atomic<bool> stopping_{false};
};

}  // namespace godwit
