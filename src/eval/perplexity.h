// Perplexity of a text: the exponential of the mean negative log-probability of its tokens.
#pragma once

#include <functional>
#include <string_view>

#include <godwit/engine.h>

namespace godwit {

struct PerplexityOptions {
  int window = 2047;    // tokens that are predicted together, after a BOS where the model has one; the rest is dropped
  int max_windows = 0;  // 0: all
  std::function<void(int64_t done, int64_t total)> on_progress;  // tokens
};

struct PerplexityResult {
  int64_t tokens = 0;  // predicted
  double mean_nll = 0, perplexity = 0;
};

// The text is cut into consecutive windows; every token of a window is predicted from BOS and those before it.
Result<PerplexityResult> measure_perplexity(const Engine& engine, std::string_view text,
                                            const PerplexityOptions& options, std::stop_token stop = {});

}  // namespace godwit
