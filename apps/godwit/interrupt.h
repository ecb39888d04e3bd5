// Ctrl-C as a stop request: the first one stops the work at hand; a second one within it ends the program as usual, or,
// where the program has more to do than this work, changes nothing.
#pragma once

#include <stop_token>

namespace godwit::cli {

class InterruptScope {
 public:
  enum Second { kEndsProgram, kIsIgnored };
  explicit InterruptScope(Second second = kEndsProgram);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  struct Watcher;
  Watcher* watcher_;
};

}  // namespace godwit::cli
