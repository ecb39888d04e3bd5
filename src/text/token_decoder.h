// From tokens back to bytes: what each token stands for, and what happens at the start of a text.
//
// A tokenizer.json describes this as a chain of decoders over the whole list of tokens. The chains that real models
// ship all reduce to a change of each token by itself, plus a rule for the start; others are refused.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <godwit/status.h>

namespace godwit {

struct TokenDecoder {
  bool byte_level = false;                                          // tokens are in the visible alphabet of bytes
  std::vector<std::pair<std::string, std::string>> replacements{};  // in every token, in order
  bool byte_fallback = false;                                       // "<0xNN>" is that byte
  std::string strip;              // this character goes from the start of the text ...
  int strip_count = 0;            // ... at most so many times
  std::string metaspace;          // becomes a space; in the first token nothing, if ...
  bool metaspace_prefix = false;  // ... a prefix was added
  bool spaces_between = false;    // no decoder at all: tokens are joined by spaces

  bool operator==(const TokenDecoder&) const = default;

  // The "decoder" of a tokenizer.json.
  static Result<TokenDecoder> from_json(const nlohmann::json& value, std::string_view label);

  // The bytes of a token inside a text. An added token is written as it is, not in the alphabet of bytes.
  std::string piece(std::string_view token, bool added) const;
  // The bytes of a token at the start of a text, before `strip`.
  std::string first_piece(std::string_view token, bool added) const;
};

}  // namespace godwit
