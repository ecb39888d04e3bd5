// A line on stderr that shows how far a long piece of work is: only on a terminal, and gone when the work is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace godwit::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(double share, const std::string& detail = {});  // with the time left
  void show_tokens(int64_t done, int64_t total);            // and tokens/s
  void clear();

 private:
  void draw(double share, const std::string& detail);

  std::string what_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace godwit::cli
