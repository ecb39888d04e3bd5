#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace godwit {
namespace {

// word_ holds three numbers: which loop this is (counted modulo 4,096: a worker that slept through a whole round may
// miss one loop), how many more workers it can use, and how many are inside. A closed loop has no free seats.
constexpr uint32_t kInside = 1, kInsideMask = 1023;
constexpr uint32_t kSeat = 1024, kSeatMask = 1023 * kSeat;
constexpr uint32_t kLoop = kSeat * 1024;

uint32_t inside(uint32_t word) {
  return word & kInsideMask;
}
uint32_t loop_of(uint32_t word) {
  return word / kLoop;
}

// Longer than what lies between two operations of a decoder, shorter than what anyone would notice as load.
constexpr std::chrono::microseconds kWatchTime{50};

// Whether `done` came true within the time worth watching for.
template <class Done>
bool watch(Done&& done) {
  const auto deadline = std::chrono::steady_clock::now() + kWatchTime;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb");
#endif
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

Status check_threads(int threads) {
  if (threads >= 0 && threads <= kMostThreads) return {};
  return errorf(ErrorCode::kInvalidArgument, "{} threads make no sense: give 1 to {}, or 0 for all cores", threads,
                kMostThreads);
}

Error refused_threads(const std::system_error& error) {
  return {ErrorCode::kExhausted,
          fmt::format("the system refuses a thread ({}); give fewer with --threads, or raise the "
                      "limit on processes or memory",
                      error.code().message())};
}

ThreadPool::ThreadPool(Placement placement)
    : placement_(std::move(placement)), ranges_(static_cast<size_t>(placement_.threads)) {
  GODWIT_CHECK(threads() >= 1 && threads() <= kMostThreads);
  workers_.reserve(static_cast<size_t>(threads() - 1));
  try {
    for (int i = 1; i < threads(); ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  end();
}

void ThreadPool::end() {
  stopping_.store(true);
  word_.fetch_add(kLoop);
  word_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_items(int thread) {
  for (int i = 0; i < ranges_in_use_; ++i) {  // its own, then those after it
    Range& range = ranges_[static_cast<size_t>((thread + i) % ranges_in_use_)];
    for (int64_t index; (index = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;)
      call_(context_, index, thread);
  }
}

void ThreadPool::work(int thread) {
  // Where a set has vanished since it was read (processors go offline), the thread stays where the process may run.
  if (!placement_.cpus.empty()) keep_thread_on(placement_.cpus[static_cast<size_t>(thread)]);
  uint32_t seen = 0;
  while (take_seat(seen)) {
    take_items(thread);
    leave_seat();
  }
}

// Waits for a free seat in another loop than `seen`, which follows. False when the pool ends.
bool ThreadPool::take_seat(uint32_t& seen) {
  uint32_t word = word_.load();
  for (;;) {
    if (stopping_.load()) return false;
    if ((word & kSeatMask) == 0 || loop_of(word) == seen) {
      word = next_word(word);
    } else if (word_.compare_exchange_weak(word, word - kSeat + kInside)) {
      seen = loop_of(word);
      return true;
    }
  }
}

void ThreadPool::leave_seat() {
  const uint32_t before = word_.fetch_sub(kInside);
  if (inside(before) == 1 && (before & kSeatMask) == 0) {
    emptied_.fetch_add(1);
    emptied_.notify_one();
  }
}

// Waits until word_ is something else than `word`.
uint32_t ThreadPool::next_word(uint32_t word) {
  if (placement_.crowded || !watch([&] { return word_.load(std::memory_order_relaxed) != word; })) {
    asleep_.fetch_add(1);  // before the comparison inside wait(): run() changes word_ first and then looks here
    word_.wait(word);
    asleep_.fetch_sub(1);
  }
  return word_.load();
}

void ThreadPool::wait_for_workers() {
  auto empty = [&] { return inside(word_.load()) == 0; };
  if (!placement_.crowded && watch(empty)) return;
  for (;;) {
    const uint32_t emptied = emptied_.load();
    if (empty()) return;
    emptied_.wait(emptied);
  }
}

void ThreadPool::run(int64_t count, int ranges, Call call, void* context) {
  if (count <= 0) return;
  std::lock_guard loop(one_loop_);
  if (count == 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  call_ = call;
  context_ = context;
  ranges_in_use_ = ranges;
  for (int i = 0; i < ranges; ++i) {
    Range& range = ranges_[static_cast<size_t>(i)];
    range.next.store(count * i / ranges, std::memory_order_relaxed);
    range.end = count * (i + 1) / ranges;
  }
  const auto workers = static_cast<int>(workers_.size());
  const int seats = static_cast<int>(std::min<int64_t>(count - 1, workers));
  word_.store((loop_of(word_.load()) + 1) * kLoop + static_cast<uint32_t>(seats) * kSeat);
  const int asleep = asleep_.load(), missing = seats - (workers - asleep);
  if (missing >= asleep && asleep > 0) {
    word_.notify_all();
  } else {
    for (int i = 0; i < missing; ++i) word_.notify_one();
  }
  take_items(0);
  word_.fetch_and(~kSeatMask);
  wait_for_workers();
}

}  // namespace godwit
