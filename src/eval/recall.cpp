#include "eval/recall.h"

#include <algorithm>

#include "base/result.h"
#include "eval/recall_sample.h"

namespace godwit {
namespace {

Status answer(Session& session, const RecallTurn& turn, std::stop_token stop, RecallResult& result) {
  GODWIT_TRY(session.append(turn.before));
  GODWIT_ASSIGN(auto scores, session.score(turn.value, {}, std::move(stop)));
  ++result.asked;
  if (std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_top; })) ++result.right;
  result.kv_bytes_per_token += static_cast<double>(session.kv_bytes()) / static_cast<double>(session.tokens().size());
  return {};
}

Status ask(const Engine& engine, const RecallSample& sample, RecallQuestion question, std::stop_token stop,
           RecallResult& result) {
  Session session = engine.start();
  if (question == RecallQuestion::kTurns) {
    GODWIT_TRY(session.append(sample.context));
    for (const RecallTurn& turn : sample.questions) GODWIT_TRY(answer(session, turn, stop, result));
    return {};
  }
  // What all questions share is computed once. Where they are part of the prompt, that ends with the last whole chunk,
  // so that each prompt is cut as if it were read alone.
  const bool late = question == RecallQuestion::kLate;
  const auto chunk = static_cast<size_t>(engine.info().prefill_chunk);
  const size_t shared = late ? sample.context.size() : sample.context.size() / chunk * chunk;
  GODWIT_TRY(session.append(std::span(sample.context).first(shared)));
  GODWIT_TRY(session.prefill({}, stop, late));
  for (const RecallTurn& turn : sample.questions) {
    Session fork = session.fork();
    GODWIT_TRY(fork.append(std::span(sample.context).subspan(shared)));
    GODWIT_TRY(answer(fork, turn, stop, result));
  }
  return {};
}

}  // namespace

Result<RecallResult> measure_recall(const Engine& engine, std::string_view text, const RecallOptions& options,
                                    std::stop_token stop) {
  GODWIT_ASSIGN(std::vector<TokenId> book, engine.tokenize(text, {.add_bos = false}));
  GODWIT_ASSIGN(RecallSampleMaker maker, RecallSampleMaker::create(engine, std::move(book), options));
  RecallResult result;
  for (int i = 0; i < options.samples; ++i) {
    GODWIT_ASSIGN(RecallSample sample, maker.make());
    GODWIT_TRY(ask(engine, sample, options.question, stop, result));
    if (options.on_progress) options.on_progress(i + 1, options.samples);
  }
  result.kv_bytes_per_token /= result.asked;
  return result;
}

}  // namespace godwit
