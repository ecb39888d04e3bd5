// Stop strings over streamed text.
//
// push() takes the next piece of text and hands back what may be shown: never any part of a stop string, and never text
// that could still turn out to be the beginning of one. When a stop string is complete, the text is cut before it and
// everything later is swallowed. Of several stop strings the one that completes first wins; if two complete at the same
// byte, the longer one. flush() at the end of generation returns what was held back.
//
// All stop strings are matched at once by an Aho-Corasick automaton: linear time in the text, whatever their overlaps.
// Works on bytes. Not thread-safe; copyable, a copy continues where the original stood.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/status.h>

namespace godwit {

class StopMatcher {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // all stop strings together

  // Empty stop strings are an error; none at all is fine and passes everything through.
  static Result<StopMatcher> make(std::vector<std::string> stops);

  std::string push(std::string_view text);
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  // Which stop string matched, as an index into the list given to make().
  std::optional<size_t> matched() const { return matched_; }
  void reset();

 private:
  struct Automaton;

  explicit StopMatcher(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}

  std::string release(size_t end);

  std::shared_ptr<const Automaton> automaton_;
  // From shown_ on, the text of the automaton's current state: a proper prefix of some stop string.
  std::string held_;
  size_t shown_ = 0;
  int state_ = 0;
  std::optional<size_t> matched_;
};

}  // namespace godwit
