#include "plan/shards.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace godwit::plan {
namespace {

double counted_pairs(TokenRange queries, TokenRange keys, int64_t window) {
  double pairs = 0;
  for (int64_t q = queries.begin; q < queries.end; ++q)
    for (int64_t k = keys.begin; k < keys.end; ++k) pairs += k <= q && (window == 0 || k > q - window);
  return pairs;
}

TEST(Shards, PairsAreThoseThatOneCounts) {
  const TokenRange ranges[] = {{0, 1}, {0, 7}, {3, 9}, {9, 20}, {12, 12}, {5, 31}};
  for (const TokenRange& q : ranges)
    for (const TokenRange& k : ranges)
      for (int64_t window : {0, 1, 2, 5, 8, 100})
        EXPECT_EQ(visible_pairs(q, k, window), counted_pairs(q, k, window))
            << q.begin << ".." << q.end << " over " << k.begin << ".." << k.end << " window " << window;
}

TEST(Shards, ZigzagHoldsEveryTokenOnceInWholePages) {
  for (int64_t tokens : {1, 5, 64, 65, 1000, 4096})
    for (int ranks : {1, 2, 3, 8})
      for (int64_t page : {1, 64}) {
        const auto shards = zigzag(100, tokens, ranks, page);
        ASSERT_EQ(shards.size(), static_cast<size_t>(ranks));
        std::set<int64_t> seen;
        int64_t least = tokens, most = 0;
        for (const auto& shard : shards) {
          EXPECT_LE(shard.size(), 2U);
          for (const TokenRange& range : shard) {
            EXPECT_EQ((range.begin - 100) % page, 0);
            for (int64_t t = range.begin; t < range.end; ++t) EXPECT_TRUE(seen.insert(t).second);
          }
          least = std::min(least, tokens_of(shard)), most = std::max(most, tokens_of(shard));
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(tokens));
        EXPECT_EQ(*seen.begin(), 100);
        EXPECT_LE(most - least, 2 * page) << tokens << " on " << ranks;
      }
}

TEST(Shards, EveryStepOfAnEvenRingHasTheSamePairs) {
  const int ranks = 4;
  const auto shards = zigzag(0, 4096, ranks, 64);
  const double chunk = 4096.0 / (2 * ranks);
  for (size_t q = 0; q < 4; ++q)
    for (size_t k = 0; k < 4; ++k)
      EXPECT_EQ(visible_pairs(shards[q], shards[k], 0), 2 * chunk * chunk + (q == k ? chunk : 0));
}

}  // namespace
}  // namespace godwit::plan
