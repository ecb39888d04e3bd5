// The tokens of a model: id to text as the vocabulary spells it, and back.
// Invariants: no two ids share a text; an empty text marks a hole. Filled by one thread, then immutable.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/token.h"
#include <godwit/status.h>

namespace godwit {

class Vocab {
 public:
  // `expected` is how many tokens will come; ids may leave holes, but not so many that tables over them get absurd.
  explicit Vocab(std::string label = {}, size_t expected = 0);
  Vocab(const Vocab&) = delete;  // the index points into the texts
  Vocab& operator=(const Vocab&) = delete;
  Vocab(Vocab&&) = default;
  Vocab& operator=(Vocab&&) = default;

  // Fails on a negative or absurd id, and on an id or text that is already taken by another. An empty text makes a
  // hole.
  Status add(int64_t id, std::string_view text);

  TokenId size() const { return static_cast<TokenId>(texts_.size()); }  // one past the largest id
  bool has(TokenId id) const { return id >= 0 && id < size() && !texts_[id].empty(); }
  const std::string& text(TokenId id) const { return texts_[id]; }  // REQUIRES: 0 <= id < size()
  std::optional<TokenId> find(std::string_view text) const;
  TokenId find_or(std::string_view text, TokenId fallback) const { return find(text).value_or(fallback); }
  const std::string& label() const { return label_; }

  // The ids of "<0x00>" to "<0xFF>", -1 where there is none.
  std::vector<TokenId> byte_tokens() const;

 private:
  std::string label_;
  int64_t max_tokens_;
  std::deque<std::string> texts_;  // a deque: texts stay where they are while it grows
  std::unordered_map<std::string_view, TokenId> index_;
};

}  // namespace godwit
