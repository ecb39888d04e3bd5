#include "backend/cpu/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/limits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Enough independent chains to fill two FMA units of latency 4; returns FLOP done.
double fma_chains(int rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto b = hn::Set(d, 0.999F), c = hn::Set(d, 0.001F), one = hn::Set(d, 1.0F);
  // Chains that began alike would be one chain to a clever compiler.
  auto x0 = hn::Set(d, *sink), x1 = hn::Add(x0, one), x2 = hn::Add(x1, one), x3 = hn::Add(x2, one);
  auto x4 = hn::Add(x3, one), x5 = hn::Add(x4, one), x6 = hn::Add(x5, one), x7 = hn::Add(x6, one);
  auto x8 = hn::Add(x7, one), x9 = hn::Add(x8, one);
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

}  // namespace
}  // namespace godwit::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <vector>

#include "backend/cpu/kernels.h"

namespace godwit {
namespace {

HWY_EXPORT(fma_chains);
HWY_EXPORT(read_all);

std::atomic<float> result_sink;  // keeps the compiler from dropping work whose result nobody wants

// The best rate of rounds over half a second.
template <class Round>
double best_rate(const Round& round) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(500);
  double best = 0;
  for (int i = 0; i < 3 || Clock::now() < end; ++i) {
    const Clock::time_point start = Clock::now();
    const double done = round();
    best = std::max(best, done / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace

double fma_round(ThreadPool& pool) {
  constexpr int kRounds = 4'000'000;
  std::vector<double> flops(static_cast<size_t>(pool.threads()));
  pool.parallel_for(pool.threads(), [&](int64_t i) {
    float sink = result_sink.load(std::memory_order_relaxed);
    flops[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(fma_chains)(kRounds, &sink);
    result_sink.store(sink, std::memory_order_relaxed);
  });
  double total = 0;
  for (double done : flops) total += done;
  return total;
}

double read_round(ThreadPool& pool, std::span<const float> memory) {
  constexpr size_t kPart = size_t{1} << 20;
  GODWIT_CHECK(memory.size() % kPart == 0);
  pool.parallel_for(static_cast<int64_t>(memory.size() / kPart), [&](int64_t i) {
    const float sum = HWY_DYNAMIC_DISPATCH(read_all)(memory.data() + static_cast<size_t>(i) * kPart, kPart);
    result_sink.store(sum, std::memory_order_relaxed);
  });
  return static_cast<double>(memory.size_bytes());
}

Result<MachineLimits> measure_limits(int threads, const std::string& simd) {
  GODWIT_ASSIGN(const cpu::Kernels kernels, cpu::kernels_for(simd));
  const Buffer buffer = cpu::aligned_buffer(kReadRoundFloats * sizeof(float));
  if (buffer.data() == nullptr)
    return errorf(ErrorCode::kExhausted, "the system has no {} bytes of memory to measure the bandwidth with",
                  kReadRoundFloats * sizeof(float));
  const std::span<float> memory(reinterpret_cast<float*>(buffer.data()), kReadRoundFloats);
  std::fill(memory.begin(), memory.end(), 1.0F);
  ThreadPool pool(threads);
  MachineLimits limits;
  if (kernels.target == "AMX_INT8" || kernels.target == "AMX_BF16") {
    limits.fma_unit = "bf16 tiles from registers";
    limits.fma_flops_per_second = best_rate([&] { return tile_round(pool); });
    limits.streamed_flops_per_second = best_rate([&] { return streamed_tile_round(pool); });
  } else if (kernels.target == "AVX512_BF16") {
    limits.fma_unit = "bf16 dot products from registers";
    limits.fma_flops_per_second = best_rate([&] { return bf16_dot_round(pool); });
  } else {
    limits.fma_unit = "fp32 multiply-adds from registers";
    limits.fma_flops_per_second = best_rate([&] { return fma_round(pool); });
  }
  static const std::map<std::string, Int8Unit> in_8_bits = {{"AVX512_BF16", Int8Unit::kAvx512Vnni},
                                                            {"AVX512_VNNI", Int8Unit::kAvx512Vnni},
                                                            {"AVX512_INT8", Int8Unit::kAvx512},
                                                            {"AVX_VNNI", Int8Unit::kAvxVnni},
                                                            {"AVX2_INT8", Int8Unit::kAvx2}};
  if (const auto unit = in_8_bits.find(kernels.target); unit != in_8_bits.end())
    limits.int8_ops_per_second = best_rate([&] { return int8_dot_round(pool, unit->second); });
  limits.read_bytes_per_second = best_rate([&] { return read_round(pool, memory); });
  return limits;
}

}  // namespace godwit
#endif
