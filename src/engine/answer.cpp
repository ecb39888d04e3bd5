#include "engine/answer.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

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
  std::optional<ConstraintState> constraint;
  if (options.constraint) {
    if (!(options.constraint->trie()->tokenizer() == vocabulary.tokenizer))
      return errorf(ErrorCode::kInvalidArgument, "the constraint was made by another engine; ask this one for it");
    GODWIT_ASSIGN(constraint, ConstraintState::start(options.constraint));
  }
  return AnswerWriter(vocabulary, vocab_size, std::move(sampling), std::move(stops), std::move(constraint), options);
}

AnswerWriter::AnswerWriter(const Vocabulary& vocabulary, int vocab_size, SamplingOptions sampling, StopMatcher stops,
                           std::optional<ConstraintState> constraint, const GenerateOptions& options)
    : vocabulary_(&vocabulary),
      sampler_(std::move(sampling), vocab_size),
      stops_(std::move(stops)),
      decoder_(vocabulary.tokenizer, options.keep_special),
      constraint_(std::move(constraint)),
      stop_tokens_(options.stop_tokens),
      max_tokens_(options.max_tokens),
      ignore_eos_(options.ignore_eos) {}

Result<std::span<const float>> AnswerWriter::constrained(std::span<const float> logits) {
  GODWIT_TRY(constraint_->allowed(allowed_));
  const auto allow = [&](std::span<const TokenId> ids) {
    for (const TokenId id : ids)
      if (id >= 0 && static_cast<size_t>(id) < logits.size())
        allowed_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  };
  if (constraint_->may_end()) {
    if (!ignore_eos_) allow(vocabulary_->end_tokens);
    allow(stop_tokens_);
  }
  logits_.assign(logits.size(), -std::numeric_limits<float>::infinity());
  bool any = false;
  for (size_t word = 0; word < allowed_.size(); ++word) {
    const size_t begin = word * 64, count = std::min<size_t>(64, logits.size() - begin);
    any |= allowed_[word] != 0;
    if (allowed_[word] == 0) continue;
    for (size_t bit = 0; bit < count; ++bit)
      if ((allowed_[word] >> bit & 1) != 0) logits_[begin + bit] = logits[begin + bit];
  }
  if (!any)
    return errorf(ErrorCode::kUnsupported,
                  "no token of this model's vocabulary goes on towards the answer that the constraint asks for");
  return std::span<const float>(logits_);
}

Result<AnswerWriter::Next> AnswerWriter::next(std::span<const float> logits, std::span<const TokenId> history) {
  if (constraint_) {
    GODWIT_ASSIGN(logits, constrained(logits));
  }
  GODWIT_ASSIGN(SampledToken token, sampler_.sample(logits, history));
  ++tokens_;
  const bool ends = (!ignore_eos_ && contains(vocabulary_->end_tokens, token.id)) || contains(stop_tokens_, token.id);
  Next next{
      {token.id, ends ? std::string() : stops_.push(decoder_.push(token.id)), token.logprob, std::move(token.top)},
      std::nullopt};
  bool complete = false;
  if (constraint_ && !ends) {
    GODWIT_ASSIGN(const bool fits, constraint_->advance(token.id));
    GODWIT_CHECK(fits, "token {} was allowed and does not fit", token.id);
    complete = constraint_->must_end();
  }
  if (ends || complete || stops_.stopped()) {
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
