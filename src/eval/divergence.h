// How far an engine's predictions are from those of full attention: the Kullback-Leibler divergence of its next-token
// distributions on a text.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include <godwit/engine.h>

namespace godwit {

// Adds up how far next-token distributions are from those that count as right.
class DivergenceMean {
 public:
  void add(std::span<const float> right_logits, std::span<const float> logits);

  int64_t tokens() const { return tokens_; }
  double mean_kl() const { return sum_ / static_cast<double>(tokens_); }  // nats
  double max_kl() const { return max_; }
  double same_top() const { return static_cast<double>(same_) / static_cast<double>(tokens_); }  // share of tokens

 private:
  int64_t tokens_ = 0, same_ = 0;
  double sum_ = 0, max_ = 0;
};

struct DivergenceOptions {
  int length = 4096;    // tokens of a window; the rest of the text is dropped
  int tail = 256;       // the last of them are predicted; what comes before is a prompt
  int max_windows = 0;  // 0: all
  std::function<void(int done, int total)> on_progress;  // windows
};

struct DivergenceResult {
  int64_t tokens = 0;  // predicted
  double mean_kl = 0;  // nats
  double max_kl = 0;
  double same_top = 0;            // share of tokens whose likeliest successor is the same
  double kv_bytes_per_token = 0;  // resident at the end of a window, mean over windows
};

// KL(full || engine): `full` is what counts as right. Both must be of one model.
Result<DivergenceResult> measure_divergence(const Engine& full, const Engine& engine, std::string_view text,
                                            const DivergenceOptions& options, std::stop_token stop = {});

}  // namespace godwit
