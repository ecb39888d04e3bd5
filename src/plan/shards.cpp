#include "plan/shards.h"

#include <algorithm>

namespace godwit::plan {
namespace {

// Sum over q in [begin, end) of min(max(q + 1, 0), most): pairs with a key in [0, most) that is not after q.
double ramp(int64_t begin, int64_t end, int64_t most) {
  begin = std::max<int64_t>(begin, 0);
  if (end <= begin || most <= 0) return 0;
  const int64_t full = std::clamp<int64_t>(most - 1, begin, end);  // from here on every q sees `most`
  const auto rising = static_cast<double>(full - begin);
  return rising * (static_cast<double>(begin) + 1 + static_cast<double>(full)) / 2 +
         static_cast<double>(end - full) * static_cast<double>(most);
}

}  // namespace

std::vector<std::vector<TokenRange>> zigzag(int64_t from, int64_t tokens, int ranks, int64_t page_tokens) {
  const int64_t chunks = 2 * int64_t{ranks}, pages = (tokens + page_tokens - 1) / page_tokens;
  std::vector<std::vector<TokenRange>> shards(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < chunks; ++i) {
    // Not the first ones longer by a page, but every so many: a rank's two chunks together are then even, too.
    const int64_t begin = std::min(tokens, pages * i / chunks * page_tokens);
    const int64_t end = std::min(tokens, pages * (i + 1) / chunks * page_tokens);
    if (end > begin) shards[static_cast<size_t>(std::min(i, chunks - 1 - i))].push_back({from + begin, from + end});
  }
  return shards;
}

int64_t tokens_of(const std::vector<TokenRange>& ranges) {
  int64_t sum = 0;
  for (const TokenRange& range : ranges) sum += range.size();
  return sum;
}

double visible_pairs(TokenRange queries, TokenRange keys, int64_t window) {
  auto before = [&](int64_t shift) {
    return ramp(queries.begin - shift, queries.end - shift, keys.end) -
           ramp(queries.begin - shift, queries.end - shift, keys.begin);
  };
  return before(0) - (window > 0 ? before(window) : 0);
}

double visible_pairs(const std::vector<TokenRange>& queries, const std::vector<TokenRange>& keys, int64_t window) {
  double sum = 0;
  for (const TokenRange& q : queries)
    for (const TokenRange& k : keys) sum += visible_pairs(q, k, window);
  return sum;
}

}  // namespace godwit::plan
