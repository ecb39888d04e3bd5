#include "text/stop_matcher.h"

#include <algorithm>
#include <queue>

#include "base/result.h"

namespace godwit {

// Aho and Corasick (1975): a trie of the stop strings whose failure links lead to the longest proper suffix that is
// also in the trie. Edges are kept in sorted lists: the alphabet is large and the nodes few.
struct StopMatcher::Automaton {
  struct Node {
    std::vector<std::pair<unsigned char, int>> next;
    int fail = 0;
    int depth = 0;
    int match = -1;  // longest stop string that ends here, itself or by way of failure links
    size_t match_bytes = 0;

    int child(unsigned char byte) const {
      auto it =
          std::lower_bound(next.begin(), next.end(), byte, [](const auto& e, unsigned char b) { return e.first < b; });
      return it != next.end() && it->first == byte ? it->second : -1;
    }
  };

  std::vector<Node> nodes{Node{}};

  int step(int state, unsigned char byte) const {
    while (true) {
      int child = nodes[static_cast<size_t>(state)].child(byte);
      if (child >= 0) return child;
      if (state == 0) return 0;
      state = nodes[static_cast<size_t>(state)].fail;
    }
  }

  void add(std::string_view stop, int index) {
    int state = 0;
    for (char c : stop) {
      unsigned char byte = static_cast<unsigned char>(c);
      int child = nodes[static_cast<size_t>(state)].child(byte);
      if (child < 0) {
        child = static_cast<int>(nodes.size());
        nodes.push_back(Node{{}, 0, nodes[static_cast<size_t>(state)].depth + 1, -1, 0});
        auto& next = nodes[static_cast<size_t>(state)].next;
        next.insert(std::upper_bound(next.begin(), next.end(), std::pair(byte, 0)), {byte, child});
      }
      state = child;
    }
    Node& end = nodes[static_cast<size_t>(state)];
    if (end.match >= 0) return;  // given twice: the first counts
    end.match = index;
    end.match_bytes = stop.size();
  }

  void link() {
    std::queue<int> open;
    open.push(0);
    while (!open.empty()) {
      int at = open.front();
      open.pop();
      for (auto [byte, child] : nodes[static_cast<size_t>(at)].next) {
        Node& node = nodes[static_cast<size_t>(child)];
        if (at != 0) node.fail = step(nodes[static_cast<size_t>(at)].fail, byte);
        const Node& shorter = nodes[static_cast<size_t>(node.fail)];
        if (node.match < 0) {
          node.match = shorter.match;
          node.match_bytes = shorter.match_bytes;
        }
        open.push(child);
      }
    }
  }
};

Result<StopMatcher> StopMatcher::make(std::vector<std::string> stops) {
  auto automaton = std::make_shared<Automaton>();
  size_t bytes = 0;
  for (size_t i = 0; i < stops.size(); i++) {
    bytes += stops[i].size();
    if (stops[i].empty()) return errorf(ErrorCode::kInvalidArgument, "stop string {} is empty", i);
    if (bytes > kMaxBytes) {
      return errorf(ErrorCode::kExhausted, "the stop strings have more than {} bytes together", kMaxBytes);
    }
    automaton->add(stops[i], static_cast<int>(i));
  }
  automaton->link();
  return StopMatcher(std::move(automaton));
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  size_t start = held_.size();
  held_ += text;
  for (size_t i = start; i < held_.size(); i++) {
    state_ = automaton_->step(state_, static_cast<unsigned char>(held_[i]));
    const auto& node = automaton_->nodes[static_cast<size_t>(state_)];
    if (node.match < 0) continue;
    matched_ = static_cast<size_t>(node.match);
    std::string shown = release(i + 1 - node.match_bytes);
    held_.clear();
    shown_ = 0;
    return shown;
  }
  return release(held_.size() - static_cast<size_t>(automaton_->nodes[static_cast<size_t>(state_)].depth));
}

// Hands out the held text up to `end`. Shown bytes are only dropped once they are the larger half, so that a long stop
// string and short pieces do not make each push copy everything held.
std::string StopMatcher::release(size_t end) {
  std::string shown = held_.substr(shown_, end - shown_);
  shown_ = end;
  if (shown_ > held_.size() / 2) {
    held_.erase(0, shown_);
    shown_ = 0;
  }
  return shown;
}

std::string StopMatcher::flush() {
  std::string rest = held_.substr(shown_);
  std::optional<size_t> matched = matched_;
  reset();
  matched_ = matched;
  return rest;
}

void StopMatcher::reset() {
  state_ = 0;
  shown_ = 0;
  held_.clear();
  matched_.reset();
}

}  // namespace godwit
