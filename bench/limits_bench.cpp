// What this machine can do at most: fused multiply-adds from registers, and reads from memory. The other benchmarks'
// rates are shares of these, measured in the same run with the same number of threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "limits_bench.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Enough independent chains to fill two FMA units of latency 4; returns FLOP done.
double fma_chains(int rounds, float* sink) {
  const hn::ScalableTag<float> d;
  auto a = hn::Set(d, 1.0F), b = hn::Set(d, 0.999F), c = hn::Set(d, 0.001F);
  auto x0 = a, x1 = a, x2 = a, x3 = a, x4 = a, x5 = a, x6 = a, x7 = a, x8 = a, x9 = a;
  for (int i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, b, c), x1 = hn::MulAdd(x1, b, c), x2 = hn::MulAdd(x2, b, c), x3 = hn::MulAdd(x3, b, c);
    x4 = hn::MulAdd(x4, b, c), x5 = hn::MulAdd(x5, b, c), x6 = hn::MulAdd(x6, b, c), x7 = hn::MulAdd(x7, b, c);
    x8 = hn::MulAdd(x8, b, c), x9 = hn::MulAdd(x9, b, c);
  }
  x0 = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  *sink = hn::GetLane(hn::Add(x0, hn::Add(x8, x9)));
  return 2.0 * 10 * static_cast<double>(hn::Lanes(d)) * rounds;
}

// Adds up `count` floats; `count` is a multiple of 64.
float read_all(const float* from, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::Load(d, from + i)), s1 = hn::Add(s1, hn::Load(d, from + i + lanes));
    s2 = hn::Add(s2, hn::Load(d, from + i + 2 * lanes)), s3 = hn::Add(s3, hn::Load(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

#include <benchmark/benchmark.h>

#include "base/thread_pool.h"
#include "bench_backend.h"

namespace godwit {
namespace {

HWY_EXPORT(fma_chains);
HWY_EXPORT(read_all);

void fma_peak(benchmark::State& state) {
  ThreadPool pool(bench_threads());
  std::vector<double> flops(static_cast<size_t>(pool.threads()) * 8);
  double total = 0;
  for (auto _ : state) {
    pool.parallel_for(pool.threads(), [&](int64_t i) {
      float sink = 0;
      flops[static_cast<size_t>(i) * 8] = HWY_DYNAMIC_DISPATCH(fma_chains)(4'000'000, &sink);
      benchmark::DoNotOptimize(sink);
    });
    for (int i = 0; i < pool.threads(); ++i) total += flops[static_cast<size_t>(i) * 8];
  }
  state.counters["FLOP/s"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
}

void read_bandwidth(benchmark::State& state) {
  constexpr size_t kFloats = size_t{256} << 20 >> 2, kParts = 64;
  ThreadPool pool(bench_threads());
  Buffer memory = *bench_backend().allocate(kFloats * sizeof(float));
  auto* data = reinterpret_cast<float*>(memory.data());
  std::fill_n(data, kFloats, 1.0F);
  for (auto _ : state)
    pool.parallel_for(kParts, [&](int64_t i) {
      float sum = HWY_DYNAMIC_DISPATCH(read_all)(data + static_cast<size_t>(i) * (kFloats / kParts), kFloats / kParts);
      benchmark::DoNotOptimize(sum);
    });
  state.counters["bytes/s"] = benchmark::Counter(
      static_cast<double>(kFloats) * 4 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

BENCHMARK(fma_peak)->Name("limit/fma")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(read_bandwidth)->Name("limit/read")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace godwit
#endif
