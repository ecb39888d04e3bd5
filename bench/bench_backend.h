// The back-end that all benchmarks of one run share. GODWIT_THREADS and GODWIT_SIMD choose threads and SIMD target.
#pragma once

#include <cstdlib>

#include "backend/backend.h"

namespace godwit {

inline int bench_threads() {
  const char* threads = std::getenv("GODWIT_THREADS");
  return threads != nullptr ? std::atoi(threads) : 0;
}

inline Backend& bench_backend() {
  static const std::unique_ptr<Backend> made = [] {
    const char* simd = std::getenv("GODWIT_SIMD");
    auto result = make_cpu_backend({.threads = bench_threads(), .simd = simd != nullptr ? simd : ""});
    GODWIT_CHECK(result.has_value(), "{}", result.error().message);
    return std::move(*result);
  }();
  return *made;
}

}  // namespace godwit
