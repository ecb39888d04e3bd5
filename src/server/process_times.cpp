#include "server/process_times.h"

#include <ctime>
#include <filesystem>
#include <fstream>

namespace godwit::server {

ProcessTimes process_times() {
  ProcessTimes times;
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
    times.cpu_seconds = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9;
  std::error_code ec;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ec)) {
    double ran_ns = 0, waited_ns = 0;
    if (std::ifstream(task.path() / "schedstat") >> ran_ns >> waited_ns)
      times.waited_seconds = times.waited_seconds.value_or(0) + waited_ns * 1e-9;
  }
  return times;
}

}  // namespace godwit::server
