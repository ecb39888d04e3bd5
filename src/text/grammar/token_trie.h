// All tokens of a vocabulary as a tree of bytes, laid out so that a walk reads it from front to back.
//
// Special tokens stand for no text, so that a walk meets them only if it asks for them: their bytes are kSpecialMark,
// which no UTF-8 contains, and the token as its vocabulary spells it. Tokens that end an answer, that stand for nothing
// or are longer than kMostBytes are left out. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace godwit {

class TokenTrie {
 public:
  static constexpr char kSpecialMark = '\xFF';
  static constexpr size_t kMostBytes = 255;

  struct Node {
    uint32_t next;    // the first node that is not below this one
    uint32_t tokens;  // those of a node are tokens()[tokens .. tokens of the node after it]
    uint8_t byte;     // the last of the node's bytes
    uint8_t depth;    // how many those are; 0: the root
  };

  // kUnsupported for a tokenizer that joins tokens in a way that depends on their neighbours. `vocab_size` is the
  // model's, which may be larger than the tokenizer's.
  static Result<TokenTrie> make(const Tokenizer& tokenizer, int vocab_size, std::span<const TokenId> end_tokens);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  int vocab_size() const { return vocab_size_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()) - 1; }  // nodes, the root included
  const Node& node(uint32_t id) const { return nodes_[id]; }
  std::span<const TokenId> tokens(uint32_t id) const {
    return std::span(tokens_).subspan(nodes_[id].tokens, nodes_[id + 1].tokens - nodes_[id].tokens);
  }
  // Empty for tokens that are left out.
  const std::string& bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }

 private:
  explicit TokenTrie(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Tokenizer tokenizer_;
  int vocab_size_ = 0;
  std::vector<Node> nodes_;  // parents before children; one more at the end, for its `tokens`
  std::vector<TokenId> tokens_;
  std::vector<std::string> bytes_;  // per token
};

}  // namespace godwit
