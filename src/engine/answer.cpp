#include "engine/answer.h"

#include <algorithm>

namespace godwit {
namespace {

bool contains(std::span<const TokenId> ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Result<AnswerWriter> AnswerWriter::make(const Vocabulary& vocabulary, int vocab_size, const GenerateOptions& options) {
  SamplingOptions sampling = options.sampling;
  sampling.end_tokens.insert(sampling.end_tokens.end(), vocabulary.end_tokens.begin(), vocabulary.end_tokens.end());
  GODWIT_TRY(validate(sampling, vocab_size));
  GODWIT_ASSIGN(StopMatcher stops, StopMatcher::make(options.stop));
  return AnswerWriter(vocabulary, vocab_size, std::move(sampling), std::move(stops), options);
}

AnswerWriter::AnswerWriter(const Vocabulary& vocabulary, int vocab_size, SamplingOptions sampling, StopMatcher stops,
                           const GenerateOptions& options)
    : vocabulary_(&vocabulary),
      sampler_(std::move(sampling), vocab_size),
      stops_(std::move(stops)),
      decoder_(vocabulary.tokenizer),
      stop_tokens_(options.stop_tokens),
      max_tokens_(options.max_tokens),
      ignore_eos_(options.ignore_eos) {}

Result<AnswerWriter::Next> AnswerWriter::next(std::span<const float> logits, std::span<const TokenId> history) {
  GODWIT_ASSIGN(SampledToken token, sampler_.sample(logits, history));
  ++tokens_;
  const bool ends = (!ignore_eos_ && contains(vocabulary_->end_tokens, token.id)) || contains(stop_tokens_, token.id);
  Next next{
      {token.id, ends ? std::string() : stops_.push(decoder_.push(token.id)), token.logprob, std::move(token.top)},
      std::nullopt};
  if (ends || stops_.stopped()) {
    next.finish = FinishReason::kStop;
  } else if (max_tokens_ >= 0 && tokens_ >= max_tokens_) {
    next.finish = FinishReason::kLength;
  }
  return next;
}

std::string AnswerWriter::rest() {
  std::string text = stops_.push(decoder_.flush());
  return text + stops_.flush();
}

}  // namespace godwit
