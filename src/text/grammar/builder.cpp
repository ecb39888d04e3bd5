#include "text/grammar/builder.h"

#include <algorithm>

#include "base/result.h"

namespace godwit {

GrammarBuilder::Node GrammarBuilder::node() {
  if (!full() || nodes_.empty()) {
    nodes_.emplace_back();
    ends_.push_back(false);
  }
  return static_cast<Node>(nodes_.size() - 1);
}

GrammarBuilder::Rule GrammarBuilder::rule() {
  const Rule rule{node(), node()};
  ends_[rule.end] = true;
  return rule;
}

void GrammarBuilder::add(Node from, Edge edge) {
  if (full()) return;
  nodes_[from].push_back(edge);
  ++edges_;
}

void GrammarBuilder::byte(Node from, uint8_t first, uint8_t last, Node to) {
  add(from, {Edge::kByte, first, last, to, 0});
}

void GrammarBuilder::skip(Node from, Node to) {
  add(from, {Edge::kSkip, 0, 0, to, 0});
}

void GrammarBuilder::call(Node from, Rule rule, Node to) {
  add(from, {Edge::kCall, 0, 0, to, rule.start});
}

GrammarBuilder::Node GrammarBuilder::text(Node from, std::string_view bytes) {
  for (const char c : bytes) {
    const Node to = node();
    byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}

void GrammarBuilder::text(Node from, std::string_view bytes, Node to) {
  skip(text(from, bytes), to);
}

void GrammarBuilder::any_of(Node from, std::string_view bytes, Node to) {
  for (const char c : bytes) byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
}

void GrammarBuilder::characters(Node from, char32_t first, char32_t last, Node to) {
  if (first > last) return;
  // Cut where the number of bytes changes, and around surrogates.
  constexpr char32_t kCuts[] = {0x80, 0x800, 0xD800, 0xE000, 0x10000, 0x110000};
  for (const char32_t cut : kCuts) {
    if (first < cut && cut <= last) {
      characters(from, first, cut - 1, to);
      characters(from, cut, last, to);
      return;
    }
  }
  if (first >= 0x110000 || (first >= 0xD800 && first < 0xE000)) return;
  if (last < 0x80) return byte(from, static_cast<uint8_t>(first), static_cast<uint8_t>(last), to);
  const int tail = first >= 0x10000 ? 3 : first >= 0x800 ? 2 : 1;  // bytes after the first
  // Cut until, byte by byte from the end, the range covers either one value or all of them.
  for (int i = 1; i <= tail; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      characters(from, first, first | mask, to);
      characters(from, (first | mask) + 1, last, to);
      return;
    }
    if ((last & mask) != mask) {
      characters(from, first, (last & ~mask) - 1, to);
      characters(from, last & ~mask, last, to);
      return;
    }
  }
  constexpr uint8_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  for (int i = tail; i >= 0; --i) {
    const auto low = static_cast<uint8_t>(first >> (6 * i)), high = static_cast<uint8_t>(last >> (6 * i));
    const uint8_t mark = i == tail ? kLead[tail] : 0x80, bits = i == tail ? 0xFF : 0x3F;
    const Node next = i == 0 ? to : node();
    byte(from, mark | (low & bits), mark | (high & bits), next);
    from = next;
  }
}

}  // namespace godwit
