// From logits to the next token.
//
// Order of steps: repetition, presence and frequency penalties over the last `penalty_window` tokens of the history,
// logit bias, then temperature, top-k, top-p, min-p, and one draw from what is left. Temperature 0 is the exact argmax
// after penalties and bias (the lowest id wins a tie) and draws nothing. The same options, logits and history give the
// same tokens on every platform: the generator is our own and is advanced once per sampled token.
//
// Reported log-probabilities are the log-softmax of the raw logits, before every step above, as the OpenAI API has it.
//
// One Sampler serves one sequence; it is not thread-safe. It keeps scratch space of the vocabulary's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/token.h"
#include <godwit/options.h>
#include <godwit/status.h>

namespace godwit {

// Checks every field against its range and the ids against the vocabulary.
Status validate(const SamplingOptions& options, int vocab_size);

struct SampledToken {
  TokenId id = 0;
  float logprob = 0.0f;           // 0 unless asked for
  std::vector<TokenLogprob> top;  // the `logprobs` most likely of those that can be, best first; ties by lower id
};

// xoshiro256** seeded by splitmix64 (Blackman and Vigna): small, fast and the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t next();
  double uniform();  // in [0, 1), 53 bits

 private:
  uint64_t state_[4];
};

class Sampler {
 public:
  // Options must have passed validate() for this vocabulary; that is checked.
  Sampler(SamplingOptions options, int vocab_size);

  // `logits` [vocab]; `history` is the sequence so far, prompt included. NaN or all-minus-infinity logits are an error.
  Result<SampledToken> sample(std::span<const float> logits, std::span<const TokenId> history);

  const SamplingOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
    double weight;  // proportional to its probability
  };

  static bool better(const Candidate& a, const Candidate& b);
  bool penalizes() const;
  void penalize(std::span<const TokenId> history);
  void adjust(std::span<const float> logits, std::span<const TokenId> history);
  TokenId draw(std::span<const float> logits, float best);
  void keep_top_k(std::span<const float> logits);
  void keep_top_p_and_min_p();
  void report(std::span<const float> logits, SampledToken& token);

  SamplingOptions options_;
  int vocab_size_;
  int64_t sampled_ = 0;
  Random random_;
  std::vector<float> adjusted_;        // [vocab], once something is to be changed
  std::vector<int> counts_;            // [vocab], all zero between calls, once they are needed
  std::vector<Candidate> candidates_;  // at most [vocab]
};

}  // namespace godwit
