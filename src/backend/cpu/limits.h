// What this machine can do at most: fused multiply-adds from registers, and reads from memory. Rates of real work are
// shares of these, measured in the same run with the same number of threads.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include <godwit/status.h>

namespace godwit {

// One round of work on all threads: what was done of it, for whoever keeps the time.
double fma_round(ThreadPool& pool);                                     // FLOP in fp32, best SIMD target
double read_round(ThreadPool& pool, std::span<const float> aligned64);  // bytes

// More than the caches of a large server hold.
inline constexpr size_t kReadRoundFloats = (size_t{512} << 20) / sizeof(float);

struct MachineLimits {
  double fma_flops_per_second = 0;  // fp32; tile units (AMX) are not counted and may exceed it
  double read_bytes_per_second = 0;
};
// The best of several rounds of each: about a second.
Result<MachineLimits> measure_limits(int threads);

}  // namespace godwit
