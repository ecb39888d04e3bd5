#include "text/byte_trie.h"

#include <algorithm>

namespace godwit {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::sort(entries.begin(), entries.end());
  struct Work {
    uint32_t node;
    size_t begin, end, depth;  // entries that share their first `depth` bytes
  };
  nodes_.emplace_back();
  std::vector<Work> stack = {{0, 0, entries.size(), 0}};
  while (!stack.empty()) {
    Work work = stack.back();
    stack.pop_back();
    while (work.begin < work.end && entries[work.begin].first.size() == work.depth) {
      nodes_[work.node].value = entries[work.begin++].second;
    }
    nodes_[work.node].edges_begin = static_cast<uint32_t>(edges_.size());
    for (size_t i = work.begin; i < work.end;) {
      const auto byte = static_cast<uint8_t>(entries[i].first[work.depth]);
      size_t j = i + 1;
      while (j < work.end && static_cast<uint8_t>(entries[j].first[work.depth]) == byte) ++j;
      const auto target = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.push_back({byte, target});
      if (work.depth == 0) root_[byte] = target;
      stack.push_back({target, i, j, work.depth + 1});
      i = j;
    }
    nodes_[work.node].edges_end = static_cast<uint32_t>(edges_.size());
  }
}

uint32_t ByteTrie::child(uint32_t node, uint8_t byte) const {
  const auto begin = edges_.begin() + nodes_[node].edges_begin;
  const auto end = edges_.begin() + nodes_[node].edges_end;
  const auto it = std::lower_bound(begin, end, byte, [](const Edge& edge, uint8_t b) { return edge.byte < b; });
  return it != end && it->byte == byte ? it->target : 0;
}

}  // namespace godwit
