// What the system gave this process: a server whose answers are slow may just not be running.
#pragma once

#include <optional>

namespace godwit::server {

struct ProcessTimes {
  double cpu_seconds = 0;
  // In which threads were ready to run and got no processor, all together, of threads that are there now. None where
  // the system does not say (Linux does).
  std::optional<double> waited_seconds;
};

ProcessTimes process_times();

}  // namespace godwit::server
