// Which KV heads look tokens up far back: what head-splitting KV policies want to know of a model.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <godwit/engine.h>

namespace godwit {

using HeadScores = std::vector<std::vector<double>>;  // [layers][kv_heads]

// RazorAttention's calibration, which needs no data: random tokens are repeated, and a head is worth what its queries
// in the last copy give to the same token in the copies before (echo) or to its successor there (induction), whichever
// is more. REQUIRES: the engine has no KV policy.
struct RepeatOptions {
  int tokens = 640, copies = 4;
  uint64_t seed = 1;
};
Result<HeadScores> scores_by_repeats(const Engine& engine, const RepeatOptions& options, std::stop_token stop = {});

// Facts are planted in a text; a head is worth what the queries that give the answer attend to in the fact's sentence.
struct FactScoreOptions {
  int length = 4096, facts = 16, samples = 2;
  uint64_t seed = 1;
  std::function<void(int done, int total)> on_progress;  // texts
};
Result<HeadScores> scores_by_facts(const Engine& engine, std::string_view text, const FactScoreOptions& options,
                                   std::stop_token stop = {});

// From scores to gates (docs/formats/companions.md): the share of heads that are worth less, so that a threshold t
// leaves the whole text to the best 1 - t of all heads.
HeadScores gates_from(const HeadScores& scores);

}  // namespace godwit
