// From logits to the pieces of an answer: samples, detokenizes at whole characters, holds back what may become a stop
// string, and knows when the answer ends. One per answer; not thread-safe.
#pragma once

#include <optional>

#include "engine/vocabulary.h"
#include "text/sampler.h"
#include "text/stop_matcher.h"
#include <godwit/session.h>

namespace godwit {

class AnswerWriter {
 public:
  // Refuses options that make no sense.
  static Result<AnswerWriter> make(const Vocabulary& vocabulary, int vocab_size, const GenerateOptions& options);

  struct Next {
    Piece piece;
    std::optional<FinishReason> finish;  // after this token: kStop or kLength
  };
  // `history` is everything before the token, prompt included.
  Result<Next> next(std::span<const float> logits, std::span<const TokenId> history);
  // Text that was held back, at the end.
  std::string rest();

  int tokens() const { return tokens_; }

 private:
  AnswerWriter(const Vocabulary& vocabulary, int vocab_size, SamplingOptions sampling, StopMatcher stops,
               const GenerateOptions& options);

  const Vocabulary* vocabulary_;
  Sampler sampler_;
  StopMatcher stops_;
  StreamDecoder decoder_;
  std::vector<TokenId> stop_tokens_;
  int max_tokens_, tokens_ = 0;
  bool ignore_eos_;
};

}  // namespace godwit
