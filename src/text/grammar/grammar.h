// A grammar over bytes, ready to be walked: rules that call one another, each a deterministic automaton.
//
// A state consumes a byte, calls a rule and goes on behind it, or ends its rule. A place in a text is a set of (state,
// stack of states to go on from); `GrammarPlaces` computes what follows such a set.
//
// Invariant, which GrammarBuilder::finish() establishes: from every state its rule can be finished with `height` more
// frames on the stack. So whoever counts that in stays within kMostFrames and never gets stuck. Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <godwit/status.h>

namespace godwit {

class Grammar {
 public:
  static constexpr int kMostFrames = 32;      // calls inside one another: how deep a text may nest
  static constexpr size_t kMostPlaces = 256;  // readings of a text at once

  struct Call {
    uint32_t rule_start, after;  // states
  };
  struct State {
    uint32_t calls_begin = 0, calls_end = 0;
    int height = 0;  // fewest frames above its own that finish its rule
    bool ends = false, has_bytes = false;
  };

  uint32_t start() const { return start_; }
  const State& state(uint32_t id) const { return states_[id]; }
  size_t states() const { return states_.size(); }
  std::span<const Call> calls(uint32_t id) const {
    return std::span(calls_).subspan(states_[id].calls_begin, states_[id].calls_end - states_[id].calls_begin);
  }
  // Bytes that no state tells apart share a class.
  int classes() const { return classes_; }
  int class_of(uint8_t byte) const { return class_of_[byte]; }
  uint32_t next(uint32_t id, int byte_class) const {  // 0: none
    return next_[static_cast<size_t>(id) * static_cast<size_t>(classes_) + static_cast<size_t>(byte_class)];
  }

 private:
  friend class GrammarFinisher;
  std::array<uint8_t, 256> class_of_{};
  int classes_ = 1;
  uint32_t start_ = 0;
  std::vector<State> states_;   // state 0 is "none"
  std::vector<uint32_t> next_;  // [states, classes]
  std::vector<Call> calls_;
};

// Stacks of states to go on from, each stored once: equal stacks have equal ids. 0 is the empty stack.
class GrammarStacks {
 public:
  uint32_t push(uint32_t stack, uint32_t state);
  uint32_t top(uint32_t stack) const { return frames_[stack].state; }
  uint32_t below(uint32_t stack) const { return frames_[stack].below; }
  int frames(uint32_t stack) const { return frames_[stack].frames; }

 private:
  struct Frame {
    uint32_t state, below;
    int frames;
  };
  std::vector<Frame> frames_ = {{0, 0, 0}};
  std::unordered_map<uint64_t, uint32_t> ids_;
};

struct GrammarPlace {
  uint32_t state, stack;
  bool operator==(const GrammarPlace&) const = default;
  bool operator<(const GrammarPlace& other) const {
    return state != other.state ? state < other.state : stack < other.stack;
  }
};

// All readings of a text so far.
struct GrammarPlaces {
  std::vector<GrammarPlace> list;  // sorted; each consumes at least one byte
  bool may_end = false;            // the text may end here; below the empty stack there is nothing
  bool operator==(const GrammarPlaces&) const = default;
};

// What follows calls and ends of rules from `seeds`, which it empties. `most_frames` bounds the stacks; `deepest`,
// where given, is raised to the bound that would have made no difference. kExhausted when there are too many readings.
Result<GrammarPlaces> settle(const Grammar& grammar, GrammarStacks& stacks, std::vector<GrammarPlace>& seeds,
                             int most_frames, int* deepest = nullptr);

}  // namespace godwit
