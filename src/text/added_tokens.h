// Tokens that are looked for in the text itself, before any cutting and merging: special tokens and those a user added.
//
// The longest token at the leftmost place wins, as in the `tokenizers` library. Tokens with the flag `normalized` are
// looked for after normalization. Immutable; safe to share between threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/token.h"

namespace godwit {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;
};

// A stretch of a text: a token, or plain text when id is -1.
struct TextSection {
  size_t begin;
  size_t end;
  TokenId id;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // `patterns[i]` is what to look for, for tokens[i].
  AddedTokenMatcher(std::vector<AddedToken> tokens, std::vector<std::string> patterns);

  // Sections in order, none of them empty. With `parse_special` false, special tokens are plain text.
  // REQUIRES: text is valid UTF-8.
  std::vector<TextSection> split(std::string_view text, bool parse_special) const;

 private:
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // values index tokens_
};

}  // namespace godwit
