#include "text/grammar/token_trie.h"

#include <algorithm>

#include "base/result.h"

namespace godwit {

Result<TokenTrie> TokenTrie::make(const Tokenizer& tokenizer, int vocab_size, std::span<const TokenId> end_tokens) {
  if (!tokenizer.pieces_join())
    return errorf(ErrorCode::kUnsupported,
                  "this model's tokenizer puts spaces between tokens, so its answers cannot be held to a grammar");
  TokenTrie trie(tokenizer);
  trie.vocab_size_ = vocab_size;
  trie.bytes_.resize(static_cast<size_t>(vocab_size));
  std::vector<TokenId> order;
  for (TokenId id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end()) continue;
    std::string bytes = tokenizer.is_special(id) ? kSpecialMark + std::string(tokenizer.token_text(id))
                                                 : std::string(tokenizer.piece(id));
    if (bytes.empty() || bytes.size() > kMostBytes) continue;
    trie.bytes_[static_cast<size_t>(id)] = std::move(bytes);
    order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    const int by_bytes = trie.bytes(a).compare(trie.bytes(b));
    return by_bytes != 0 ? by_bytes < 0 : a < b;
  });
  std::vector<uint32_t> open = {0};  // the nodes of the last token's bytes, root first
  trie.nodes_.push_back({0, 0, 0, 0});
  const auto close = [&](size_t depth) {  // all nodes deeper than this
    for (; open.size() > depth + 1; open.pop_back())
      trie.nodes_[open.back()].next = static_cast<uint32_t>(trie.nodes_.size());
  };
  std::string_view last;
  for (const TokenId id : order) {
    const std::string_view bytes = trie.bytes(id);
    const auto common =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      open.push_back(static_cast<uint32_t>(trie.nodes_.size()));
      trie.nodes_.push_back(
          {0, static_cast<uint32_t>(trie.tokens_.size()), static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(i + 1)});
    }
    trie.tokens_.push_back(id);
    last = bytes;
  }
  close(0);
  trie.nodes_[0].next = static_cast<uint32_t>(trie.nodes_.size());
  trie.nodes_.push_back({0, static_cast<uint32_t>(trie.tokens_.size()), 0, 0});
  return trie;
}

}  // namespace godwit
