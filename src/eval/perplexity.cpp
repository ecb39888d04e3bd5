#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace godwit {

Result<PerplexityResult> measure_perplexity(const Engine& engine, std::string_view text,
                                            const PerplexityOptions& options, std::stop_token stop) {
  if (options.max_windows < 0)
    return errorf(ErrorCode::kInvalidArgument, "{} windows make no sense; 0 means all", options.max_windows);
  if (options.window < 2)
    return errorf(ErrorCode::kInvalidArgument, "a window of {} tokens predicts nothing", options.window);
  GODWIT_ASSIGN(auto tokens, engine.tokenize(text, {.add_bos = false}));
  GODWIT_ASSIGN(auto begin, engine.tokenize("", {.add_bos = true}));  // BOS, where the model wants one
  const auto window = static_cast<size_t>(options.window);
  size_t windows = tokens.size() / window;
  if (options.max_windows > 0) windows = std::min(windows, static_cast<size_t>(options.max_windows));
  if (windows == 0)
    return errorf(ErrorCode::kInvalidArgument, "the text has {} tokens, less than one window of {}", tokens.size(),
                  window);
  PerplexityResult result;
  double sum = 0;
  for (size_t w = 0; w < windows; ++w) {
    Session session = engine.start();
    GODWIT_TRY(session.append(begin));
    GODWIT_ASSIGN(auto scores, session.score(std::span(tokens).subspan(w * window, window), {}, stop));
    // Without a BOS the first token has nothing to be predicted from.
    for (size_t i = begin.empty() ? 1 : 0; i < scores.size(); ++i) {
      sum -= static_cast<double>(scores[i].logprob);
      ++result.tokens;
    }
    if (options.on_progress)
      options.on_progress(static_cast<int64_t>((w + 1) * window), static_cast<int64_t>(windows * window));
  }
  result.mean_nll = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.mean_nll);
  return result;
}

}  // namespace godwit
