// What KV codecs want to know of a model's keys, values and queries, gathered while it reads a text.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "kv/codec_tables.h"
#include <godwit/engine.h>

namespace godwit {

// Mean squares of the queries that read each KV head, [layers * kv_heads, head_dim]: what `think` weighs channels by.
// REQUIRES: the engine has no KV policy.
struct QueryFitOptions {
  int tokens = 4096;  // at most, from the beginning of the text; no more than the context holds
};
Result<std::vector<CodecTable>> fit_queries(const Engine& engine, std::string_view text, const QueryFitOptions& options,
                                            std::stop_token stop = {});

// Codebooks of keys and values, each [layers * kv_heads, head_dim, 256], for `million`: k-means of each group of
// `width` dimensions by itself.
struct CodebookFitOptions {
  int tokens = 8192;    // likewise; keys at later positions, which RoPE has turned further, are not known
  int width = 2;        // numbers of a group: 2 or 4
  int iterations = 12;  // of k-means
  uint64_t seed = 1;
  std::function<void(int done, int total)> on_progress;  // KV heads
};
Result<std::vector<CodecTable>> fit_codebooks(const Engine& engine, std::string_view text,
                                              const CodebookFitOptions& options, std::stop_token stop = {});

// k-means of points[count, width]: centroids[width, 256]. Centroids that no point is nearest to move to the points
// that are farthest from theirs. REQUIRES: count > 0.
std::vector<float> fit_centroids(const std::vector<float>& points, size_t width, int iterations, uint64_t seed);

}  // namespace godwit
