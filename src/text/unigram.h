// Unigram segmentation (Kudo 2018): of all ways to write a piece as tokens, the one with the highest sum of scores,
// found by the Viterbi algorithm. Characters outside the vocabulary cost more than any token; a run of them becomes
// byte tokens "<0xNN>" where the model has those, or one unknown token. Immutable; safe to share between threads.
#pragma once

#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/token.h"
#include "text/vocab.h"

namespace godwit {

class UnigramModel {
 public:
  // `scores` has one entry per id, log-probabilities. `unreachable[id]`: never the outcome of plain text. `unk` is -1
  // when there is none; then unknown characters without byte tokens are dropped.
  UnigramModel(const Vocab& vocab, std::vector<double> scores, TokenId unk, bool byte_fallback,
               const std::vector<bool>& unreachable);

  // REQUIRES: the piece is valid UTF-8.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;
  // REQUIRES: covers_bytes().
  void encode_bytes(std::string_view bytes, std::vector<TokenId>& out) const;
  bool covers_bytes() const { return covers_bytes_; }

  const std::vector<double>& scores() const { return scores_; }
  TokenId unk() const { return unk_; }
  bool byte_fallback() const { return byte_fallback_; }

 private:
  void encode_unknown(std::string_view text, std::vector<TokenId>& out) const;

  std::vector<double> scores_;
  TokenId unk_;
  bool byte_fallback_;
  bool covers_bytes_ = false;
  double unknown_score_;
  ByteTrie trie_;
  std::vector<TokenId> byte_ids_;
};

}  // namespace godwit
