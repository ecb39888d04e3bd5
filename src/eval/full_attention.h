// What full attention with an f32 cache makes of how a text goes on: what a sweep measures every method against.
//
// At 32K tokens it takes as long as several methods do, so it can be kept in a file: a line of JSON with the key (all
// that the numbers depend on) and the sizes, then the numbers as little-endian f32, logits first.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "eval/recall_sample.h"
#include <godwit/engine.h>

namespace godwit {

struct FullAttention {
  std::vector<std::vector<float>> logits;  // [tokens of the continuation][vocabulary]: after each token
  std::vector<std::vector<float>> mass;    // [layers * kv_heads][positions]: what all of its queries attend to
};

// Empty where a text does not go on.
Result<FullAttention> run_full_attention(const Engine& full, const RecallSample& sample, std::stop_token stop);

Status write_full_attention(const std::string& path, const std::string& key, const FullAttention& made);
// Nothing where there is no such file; kBadData where it is cut off or has another key.
Result<std::optional<FullAttention>> read_full_attention(const std::string& path, const std::string& key);

}  // namespace godwit
