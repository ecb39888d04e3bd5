// What a parallel loop costs beyond its work: items of `us` microseconds, one per thread, loop after loop.
//
// "overhead_us" is the time of a loop less that of one item.
#include <chrono>

#include <benchmark/benchmark.h>

#include "base/thread_pool.h"
#include "bench_backend.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;

void spin_for(std::chrono::microseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

void loops(benchmark::State& state) {
  ThreadPool pool(bench_threads());
  const std::chrono::microseconds item(state.range(0));
  const auto begin = Clock::now();
  for (auto _ : state) pool.parallel_for(pool.threads(), [&](int64_t) { spin_for(item); });
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  state.counters["overhead_us"] =
      took.count() / static_cast<double>(state.iterations()) - static_cast<double>(item.count());
}

BENCHMARK(loops)->Name("loop_overhead")->ArgName("us")->Arg(0)->Arg(5)->Arg(20)->Arg(100)->UseRealTime();

}  // namespace
}  // namespace godwit
