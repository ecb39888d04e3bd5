// A trie over bytes: all stored strings that begin at a place of a text, shortest first. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace godwit {

class ByteTrie {
 public:
  ByteTrie() = default;
  // Empty strings are ignored; of equal strings one counts. Values are not negative.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  bool empty() const { return nodes_.size() <= 1; }
  bool may_start_with(uint8_t byte) const { return !nodes_.empty() && root_[byte] != 0; }

  // Calls fn(length, value) for every stored string that text.substr(pos) starts with.
  template <class Fn>
  void each_prefix(std::string_view text, size_t pos, Fn&& fn) const {
    if (pos >= text.size() || nodes_.empty()) return;
    uint32_t node = root_[static_cast<uint8_t>(text[pos])];
    for (size_t length = 1; node != 0; ++length) {
      if (nodes_[node].value >= 0) fn(length, nodes_[node].value);
      if (pos + length >= text.size()) return;
      node = child(node, static_cast<uint8_t>(text[pos + length]));
    }
  }

 private:
  struct Node {
    uint32_t edges_begin = 0;
    uint32_t edges_end = 0;
    int32_t value = -1;
  };
  struct Edge {
    uint8_t byte;
    uint32_t target;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;  // node 0 is the root, and "none" as a target
  std::vector<Edge> edges_;  // those of a node in the order of their bytes
  std::array<uint32_t, 256> root_{};
};

}  // namespace godwit
