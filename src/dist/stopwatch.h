#pragma once

#include <chrono>
#include <ctime>

namespace godwit::dist {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Of the calling thread, or of the whole process: what other processes take of a core does not count.
inline double cpu_seconds(clockid_t whose) {
  timespec now{};
  clock_gettime(whose, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace godwit::dist
