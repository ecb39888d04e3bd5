#include "base/thread_pool.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include <sched.h>

#include "base/check.h"

namespace godwit {
namespace {

// Quota of cgroup v2 in cores, or 0 when there is none.
int cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  char* end = nullptr;
  double value = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str()) return 0;
  return std::max(1, static_cast<int>(std::floor(value / period + 0.5)));
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  int count = 0;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = CPU_COUNT(&set);
  if (count <= 0) count = static_cast<int>(std::thread::hardware_concurrency());
  if (int quota = cgroup_cpus(); quota > 0) count = std::min(count, quota);
  return std::max(1, count);
}

Status check_threads(int threads) {
  if (threads >= 0 && threads <= 1024) return {};
  return errorf(ErrorCode::kInvalidArgument, "{} threads make no sense: give 1 to 1024, or 0 for all cores", threads);
}

ThreadPool::ThreadPool(int threads) {
  GODWIT_CHECK(threads >= 0);
  int total = threads > 0 ? threads : usable_cpus();
  workers_.reserve(static_cast<size_t>(total - 1));
  for (int i = 1; i < total; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_items(int thread) {
  for (;;) {
    int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count_) return;
    call_(context_, index, thread);
  }
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    lock.unlock();
    take_items(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::run(int64_t count, Call call, void* context) {
  if (count <= 0) return;
  std::lock_guard loop(one_loop_);
  if (count == 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    call_ = call;
    context_ = context;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  wake_.notify_all();
  take_items(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0; });
}

}  // namespace godwit
