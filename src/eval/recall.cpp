#include "eval/recall.h"

#include <algorithm>

#include "base/result.h"
#include "eval/recall_sample.h"

namespace godwit {

Result<RecallResult> measure_recall(const Engine& engine, std::string_view text, const RecallOptions& options,
                                    std::stop_token stop) {
  GODWIT_ASSIGN(std::vector<TokenId> book, engine.tokenize(text, {.add_bos = false}));
  GODWIT_ASSIGN(RecallSampleMaker maker, RecallSampleMaker::create(engine, std::move(book), options));
  RecallResult result;
  for (int i = 0; i < options.samples; ++i) {
    GODWIT_ASSIGN(RecallSample sample, maker.make());
    Session session = engine.start();
    GODWIT_TRY(session.append(sample.context));
    for (const RecallQuestion& question : sample.questions) {
      GODWIT_TRY(session.append(question.before));
      GODWIT_ASSIGN(auto scores, session.score(question.value, {}, stop));
      ++result.asked;
      if (std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_top; })) ++result.right;
    }
    if (options.on_progress) options.on_progress(i + 1, options.samples);
  }
  return result;
}

}  // namespace godwit
