// Which rank holds which of the new tokens, and how many pairs of query and key its attention has: exactly, for shards
// that are even or not.
#pragma once

#include <cstdint>
#include <vector>

namespace godwit::plan {

struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The zigzag: `tokens` from position `from` on are cut into 2N chunks of whole pages, as even as they come, the last
// page perhaps not full; rank i gets chunks i and 2N - 1 - i, so that early and late ones balance causal work.
std::vector<std::vector<TokenRange>> zigzag(int64_t from, int64_t tokens, int ranks, int64_t page_tokens);

int64_t tokens_of(const std::vector<TokenRange>& ranges);

// Pairs of a query in `queries` and a key in `keys` that it sees: not after it, and in its window (0: all).
double visible_pairs(TokenRange queries, TokenRange keys, int64_t window);
double visible_pairs(const std::vector<TokenRange>& queries, const std::vector<TokenRange>& keys, int64_t window);

}  // namespace godwit::plan
