// What a Tokenizer is made of; shared by the loaders (tokenizer.json, GGUF) and the encoder.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocab.h"

namespace godwit {

// What one encode() call keeps between its pieces.
struct EncodeScratch {
  explicit EncodeScratch(size_t text_bytes) : regex(text_bytes) {}
  RegexScratch regex;
  BpeScratch bpe;
};

struct Tokenizer::Impl {
  Vocab vocab;
  std::vector<AddedToken> added;  // in the order of their ids
  std::vector<bool> special;      // per id
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<std::monostate, BpeModel, UnigramModel> model;
  TokenDecoder decoder;
  std::vector<TokenId> before, after;  // what add_bos and add_eos put around a text
  TokenId bos = -1, eos = -1, eot = -1, unk = -1, pad = -1;

  // Derived by finish():
  AddedTokenMatcher raw_matcher, normalized_matcher;
  std::vector<std::string> pieces;  // bytes per id

  // Building, in this order: vocab and added, then special, then the rest, then finish().
  Status add_token(AddedToken token);  // into vocab and added
  void mark_specials();                // fills `special` from `added`
  Status finish();

  bool covers_bytes() const;
  Status encode_text(std::string_view text, bool at_start, bool prefix, bool parse_special, EncodeScratch& scratch,
                     std::vector<TokenId>& out) const;
  Status encode_section(std::string_view text, bool at_start, bool prefix, bool parse_special, EncodeScratch& scratch,
                        std::vector<TokenId>& out) const;
  Status encode_plain(std::string text, bool at_start, bool prefix, EncodeScratch& scratch,
                      std::vector<TokenId>& out) const;
  void encode_bytes(std::string_view bytes, EncodeScratch& scratch, std::vector<TokenId>& out) const;
  void append_piece(TokenId id, bool keep_special, DecodeState& state, std::string& out) const;
};

// Reads the post-processor of a tokenizer.json and its tokenizer_config.json (null when there is none): BOS, EOS and
// their like, and what encode() puts around a text.
Status read_specials(const nlohmann::json& post_processor, const nlohmann::json& config, std::string_view label,
                     Tokenizer::Impl& impl);

}  // namespace godwit
