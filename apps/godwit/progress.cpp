#include "progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace godwit::cli {
namespace {

std::string time_text(double seconds) {
  const auto s = std::llround(seconds);
  return s < 100 ? fmt::format("{} s", s) : fmt::format("{}:{:02} min", s / 60, s % 60);
}

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

void ProgressBar::show(double share, const std::string& detail) {
  draw(share, detail);
}

void ProgressBar::show_tokens(int64_t done, int64_t total) {
  const double elapsed = seconds(std::chrono::steady_clock::now() - start_);
  const double rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;
  draw(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1)),
       fmt::format("  {}/{} tokens  {:.0f} tok/s", done, total, rate));
}

void ProgressBar::draw(double share, const std::string& detail) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = seconds(now - start_);
  // Short work needs no bar, and a terminal no more than ten frames a second.
  if (elapsed < 0.3 || (drawn_ && seconds(now - last_) < 0.1 && share < 1)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 28;
  const int filled = static_cast<int>(share * kWidth);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(kWidth, '.');
  const std::string left = share > 0 ? time_text(elapsed / share * (1 - share)) + " left" : std::string();
  std::fprintf(stderr, "\r\033[K%s [%s] %3.0f%%%s  %s", what_.c_str(), bar.c_str(), share * 100, detail.c_str(),
               left.c_str());
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace godwit::cli
