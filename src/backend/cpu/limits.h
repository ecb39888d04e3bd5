// What this machine can do at most: multiply-adds of a SIMD target from registers, and reads from memory. Rates of real
// work are shares of these, measured in the same run with the same number of threads.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include <godwit/status.h>

namespace godwit {

// One round of work on all threads: what was done of it, for whoever keeps the time.
double fma_round(ThreadPool& pool);       // FLOP in fp32, best SIMD target
double bf16_dot_round(ThreadPool& pool);  // FLOP with bf16 operands in AVX-512; needs cpu::has_avx512_bf16()
// Of cpu::has_avx512_vnni(), has_avx512(), has_avx_vnni() and has_avx2().
enum class Int8Unit { kAvx512Vnni, kAvx512, kAvxVnni, kAvx2 };
double int8_dot_round(ThreadPool& pool, Int8Unit unit);  // operations on 8-bit codes
double tile_round(ThreadPool& pool);                     // FLOP in tiles of bf16; needs cpu::has_amx()
double streamed_tile_round(ThreadPool& pool);            // the same where every tile comes from the second cache
double read_round(ThreadPool& pool, std::span<const float> aligned64);  // bytes

// More than the caches of a large server hold.
inline constexpr size_t kReadRoundFloats = (size_t{512} << 20) / sizeof(float);

struct MachineLimits {
  double fma_flops_per_second = 0;       // of the unit that the SIMD target multiplies matrices with
  std::string fma_unit;                  // that unit, in words
  double streamed_flops_per_second = 0;  // of a tile unit whose tiles come from the second cache; 0 for others
  // In vectors of 8-bit codes, where the target multiplies quantized weights so, in prompts too; 0 for others.
  double int8_ops_per_second = 0;
  double read_bytes_per_second = 0;
};
// The best of several rounds of each: about a second. `simd` as in CpuOptions.
Result<MachineLimits> measure_limits(int threads, const std::string& simd);

}  // namespace godwit
