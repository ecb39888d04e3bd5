// Text to token ids and back, as the model was trained: from a Hugging Face tokenizer.json or from GGUF metadata.
//
// Byte-level BPE, SentencePiece-style BPE and unigram, with added and special tokens. Ids equal those of the
// `tokenizers` library for every valid UTF-8 text (up to characters that only one of the two Unicode versions in use
// knows). Bytes that are not UTF-8 are kept: for a byte-level BPE without a
// normalizer, and for a model with byte fallback, decode(encode(x)) == x for any bytes (a SentencePiece model drops a
// single leading space by design, as the library does).
//
// A Tokenizer is immutable and cheap to copy (copies share one vocabulary); every const member may be called from any
// number of threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/gguf_vocab.h"
#include "text/token.h"
#include <godwit/status.h>

namespace godwit {

struct EncodeOptions {
  bool add_bos = true;         // put BOS before the text where the model wants it
  bool add_eos = true;         // put EOS behind the text where the model wants it
  bool parse_special = false;  // text like <|im_start|> becomes the special token (templates: yes; user content: no)
  bool continues = false;      // the text goes on where one encoded before it ends: no prefix space
};

// Where a decoding stands: a prefix space that encoding added has to go from the start of the text.
struct DecodeState {
  bool first = true;     // no token yet
  bool at_start = true;  // nothing but stripped characters yet
  int stripped = 0;
};

class Tokenizer {
 public:
  // `label` names the source in error messages. `tokenizer_config_json` may be empty; it gives the names of the BOS,
  // EOS, PAD and UNK tokens and the add_bos_token / add_eos_token flags, which win over the post-processor.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                                     std::string_view label);
  static Result<Tokenizer> from_gguf(GgufVocab vocab, std::string_view label);

  // Fails only where a (hostile) tokenizer's split pattern needs unreasonable time on this text, or its normalizer
  // makes the text unreasonably long.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The exact bytes, which need not be UTF-8. Ids outside the vocabulary stand for nothing.
  std::string decode(std::span<const TokenId> ids, bool keep_special = false) const;

  // The bytes an id stands for inside a text; empty for an id outside the vocabulary or in a hole of it.
  std::string_view piece(TokenId id) const;
  // The token as its vocabulary spells it ("Ġthe", "▁the", "<0x0A>", "<|im_end|>").
  std::string_view token_text(TokenId id) const;
  // The id of a token as its vocabulary spells it.
  std::optional<TokenId> find(std::string_view token_text) const;

  // Whether a text is its tokens' pieces one after the other, but for what is stripped at its start.
  bool pieces_join() const;
  bool is_special(TokenId id) const;
  int vocab_size() const;  // one past the largest id
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> eot() const;  // end of turn, where the source names one
  std::optional<TokenId> unk() const;
  std::optional<TokenId> pad() const;
  bool adds_bos() const;  // whether encode() with add_bos puts BOS first
  bool adds_eos() const;

  // What to write into a GGUF file so that from_gguf gives an equal tokenizer; an error where GGUF cannot say it.
  Result<GgufVocab> to_gguf_vocab() const;

  // Whether one is a copy of the other.
  friend bool operator==(const Tokenizer& a, const Tokenizer& b) { return a.impl_ == b.impl_; }

  struct Impl;  // src/text/tokenizer_impl.h

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;  // never null
};

// Turns ids into text one by one, at complete characters only: what push() returns is always valid UTF-8. Over a whole
// stream, push() and flush() together give decode() of the ids, each broken sequence replaced by U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool keep_special = false);

  std::string push(TokenId id);
  std::string flush();  // the rest; the decoder is then ready for a new stream

 private:
  Tokenizer tokenizer_;
  bool keep_special_;
  DecodeState state_;
  std::string pending_;  // bytes of a character that is not complete
};

}  // namespace godwit
