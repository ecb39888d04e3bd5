// The machine's limits (backend/cpu/limits.h). The other benchmarks' rates are shares of these, measured in the same
// run with the same number of threads.
#include <benchmark/benchmark.h>

#include "backend/cpu/limits.h"
#include "bench_backend.h"

namespace godwit {
namespace {

void fma_peak(benchmark::State& state) {
  ThreadPool pool(bench_threads());
  double total = 0;
  for (auto _ : state) total += fma_round(pool);
  state.counters["FLOP/s"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
}

void read_bandwidth(benchmark::State& state) {
  ThreadPool pool(bench_threads());
  Buffer memory = *bench_backend().allocate(kReadRoundFloats * sizeof(float));
  const std::span<float> floats(reinterpret_cast<float*>(memory.data()), kReadRoundFloats);
  std::fill(floats.begin(), floats.end(), 1.0F);
  double total = 0;
  for (auto _ : state) total += read_round(pool, floats);
  state.counters["bytes/s"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
}

BENCHMARK(fma_peak)->Name("limit/fma")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(read_bandwidth)->Name("limit/read")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace godwit
