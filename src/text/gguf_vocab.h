// A vocabulary as GGUF metadata describes it: plain data, read or written by whoever has the file open.
// The comment on a member names its key. Members of the `godwit.tokenizer.` family are ours: they keep what a
// tokenizer.json says and the common keys cannot, other programs skip them, and they stay unwritten while empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/token.h"

namespace godwit {

// The values of tokenizer.ggml.token_type.
enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// The bits of godwit.tokenizer.token_flags.
inline constexpr uint8_t kTokenLstrip = 1, kTokenRstrip = 2, kTokenSingleWord = 4, kTokenNormalized = 8;

struct GgufVocab {
  std::string model;  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), "t5"
  std::string pre;    // tokenizer.ggml.pre: names the split pattern of a byte-level BPE; empty is "default"
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens
  std::vector<float> scores;        // tokenizer.ggml.scores; empty or one per token
  std::vector<int32_t> types;       // tokenizer.ggml.token_type; empty or one per token
  std::vector<std::string> merges;  // tokenizer.ggml.merges: "left right", best first
  TokenId bos = -1;                 // tokenizer.ggml.bos_token_id, and so on
  TokenId eos = -1;
  TokenId eot = -1;
  TokenId unk = -1;                              // tokenizer.ggml.unknown_token_id
  TokenId pad = -1;                              // tokenizer.ggml.padding_token_id
  std::optional<bool> add_bos;                   // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;                   // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;          // tokenizer.ggml.add_space_prefix
  std::optional<bool> remove_extra_whitespaces;  // tokenizer.ggml.remove_extra_whitespaces
  std::vector<uint8_t> precompiled_charsmap;     // tokenizer.ggml.precompiled_charsmap
  std::string space_prefix;                      // godwit.tokenizer.space_prefix: "first", "always" or empty
  std::vector<uint8_t> token_flags;              // godwit.tokenizer.token_flags; empty or one per token
};

}  // namespace godwit
