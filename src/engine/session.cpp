#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/answer.h"
#include "engine/session_impl.h"
#include "engine/team.h"
#include <godwit/session.h>

namespace godwit {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TokenScore score_of(std::span<const float> logits, TokenId token) {
  const float own = logits[static_cast<size_t>(token)], top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit - top));
  return {static_cast<float>(static_cast<double>(own - top) - std::log(sum)), own == top};
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Session Engine::start() const {
  return Session(std::make_unique<Session::Impl>(impl_));
}

Status Session::append(std::span<const TokenId> tokens) {
  return impl_->append(tokens);
}

Status Session::append_text(std::string_view text) {
  const bool first = impl_->tokens.empty();
  GODWIT_ASSIGN(auto tokens, impl_->engine->vocabulary->tokenizer.encode(
                                 text, {.add_bos = first, .add_eos = false, .continues = !first}));
  return impl_->append(tokens);
}

Status Session::prefill(const std::function<void(const Progress&)>& on_progress, std::stop_token stop,
                        bool prompt_ends) {
  return impl_->compute_pending(on_progress, std::move(stop), {}, prompt_ends);
}

Status Session::read(std::span<const TokenId> tokens,
                     const std::function<void(std::span<const float> logits)>& on_logits, std::stop_token stop) {
  GODWIT_TRY(prefill({}, stop));
  GODWIT_TRY(impl_->append(tokens));
  auto each = [&](size_t, std::span<const float> logits) { on_logits(logits); };
  return impl_->compute_pending({}, std::move(stop), each, false);
}

Result<std::vector<TokenScore>> Session::score(std::span<const TokenId> tokens,
                                               const std::function<void(const Progress&)>& on_progress,
                                               std::stop_token stop) {
  Impl& s = *impl_;
  if (!s.tokens.empty() && s.computed() == s.tokens.size() && s.logits.empty())
    s.forget_computed(s.computed() - 1);  // after truncate(): the last token's logits are gone
  GODWIT_TRY(prefill({}, stop));
  std::vector<TokenScore> scores;
  if (tokens.empty()) return scores;
  GODWIT_TRY(s.append(tokens));
  // The first token is predicted by the last one before it.
  scores.push_back(s.logits.empty() ? TokenScore() : score_of(s.logits, tokens[0]));
  auto each = [&](size_t token, std::span<const float> logits) {
    if (token + 1 < s.tokens.size()) scores.push_back(score_of(logits, s.tokens[token + 1]));
  };
  GODWIT_TRY(s.compute_pending(on_progress, std::move(stop), each, false));
  return scores;
}

Result<Generation> Session::generate(const GenerateOptions& options, const std::function<bool(const Piece&)>& on_piece,
                                     const std::function<void(const Progress&)>& on_progress, std::stop_token stop) {
  Impl& s = *impl_;
  const Engine::Impl& e = *s.engine;
  const auto vocab = static_cast<int>(e.model->config().vocab_size);
  if (s.tokens.empty())
    return errorf(ErrorCode::kInvalidArgument, "there is nothing to continue: append a prompt of at least one token");
  GODWIT_ASSIGN(AnswerWriter writer, AnswerWriter::make(*e.vocabulary, vocab, options));

  Generation out;
  auto clock = std::chrono::steady_clock::now();
  if (s.computed() == s.tokens.size() && s.logits.empty())  // after truncate(): the last token's logits are gone
    s.forget_computed(s.computed() - 1);
  out.prompt_tokens = static_cast<int>(s.tokens.size() - s.computed());
  GODWIT_TRY(prefill(on_progress, stop));
  out.prefill_seconds = seconds_since(clock);

  clock = std::chrono::steady_clock::now();
  out.finish = FinishReason::kLength;  // of an answer of no tokens
  bool wanted = true, more = options.max_tokens != 0;
  while (more) {
    if (static_cast<int64_t>(s.tokens.size()) >= e.memory.context_tokens) {
      out.finish = FinishReason::kContextFull;
      break;
    }
    if (stop.stop_requested()) {
      out.finish = FinishReason::kCancelled;
      break;
    }
    if (s.computed() < s.tokens.size()) {
      Status status = s.step(false, {});
      if (!status && status.error().code == ErrorCode::kExhausted) {
        out.finish = FinishReason::kKvExhausted;
        break;
      }
      GODWIT_TRY(status);
    }
    GODWIT_ASSIGN(AnswerWriter::Next next, writer.next(s.logits, s.tokens));
    s.append_sampled(next.piece.id);
    out.tokens.push_back(next.piece.id);
    out.text += next.piece.text;
    wanted = !on_piece || on_piece(next.piece);
    more = wanted && !next.finish;
    if (!more) out.finish = wanted ? *next.finish : FinishReason::kCancelled;
  }
  if (std::string rest = writer.rest(); !rest.empty()) {
    out.text += rest;
    if (on_piece && wanted) on_piece({out.tokens.empty() ? 0 : out.tokens.back(), rest, 0, {}, false});
  }
  out.decode_seconds = seconds_since(clock);
  return out;
}

std::span<const TokenId> Session::tokens() const {
  return impl_->tokens;
}

uint64_t Session::kv_bytes() const {
  std::lock_guard lock(impl_->engine->mutex);
  if (Team* team = impl_->engine->team.get()) return team->use(impl_->team_sequence).bytes;
  return impl_->sequence->bytes();
}

void Session::truncate(size_t count) {
  Impl& s = *impl_;
  if (count >= s.tokens.size() && count >= s.computed()) return;
  s.drop_tokens(std::min(count, s.tokens.size()));
}

Session Session::fork() const {
  auto copy = std::make_unique<Impl>(impl_->engine);
  copy->tokens = impl_->tokens;
  copy->phases = impl_->phases;
  copy->logits = impl_->logits;
  copy->unrepaired = impl_->unrepaired;
  std::lock_guard lock(impl_->engine->mutex);
  copy->retention.reset();
  if (copy->engine->team) copy->engine->team->drop(copy->team_sequence);
  copy->sequence = impl_->sequence->fork();
  if (copy->engine->team) copy->team_sequence = copy->engine->team->fork(impl_->team_sequence, *copy->sequence);
  if (impl_->retention) copy->retention = std::make_unique<KvRetention>(*impl_->retention, *copy->sequence);
  return Session(std::move(copy));
}

}  // namespace godwit
