#include "dist/shard.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace godwit::dist {
namespace {

TEST(Shards, EveryRowIsDealtOnceAndNobodyGetsAUnitMore) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    const Shards shards(ranks, 64);
    for (int32_t begin : {0, 1, 1000})
      for (int32_t tokens : {1, 2, ranks, 2 * ranks - 1, 2 * ranks, 100, 64 * ranks, 1000, 5000}) {
        std::vector<int> seen(static_cast<size_t>(tokens));
        int32_t least = tokens, most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto runs = shards.rows(rank, {begin, begin + tokens});
          least = std::min(least, size_of(runs));
          most = std::max(most, size_of(runs));
          int32_t last = begin - 1;
          for (const Stretch& run : runs) {
            EXPECT_GT(run.begin, last);
            EXPECT_LT(run.begin, run.end);
            last = run.end;
            for (int32_t p = run.begin; p < run.end; ++p) ++seen[static_cast<size_t>(p - begin)];
          }
        }
        EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << ranks << " ranks, " << tokens << " tokens";
        const int32_t unit = std::clamp((tokens + 2 * ranks - 1) / (2 * ranks), 1, 64);
        EXPECT_LE(most - least, unit + (tokens < 128 * ranks ? unit : 0)) << ranks << " ranks, " << tokens << " tokens";
      }
  }
}

// The shares of so many ranks, of which one is as quick as can be.
Shares random_shares(int ranks, uint32_t seed) {
  std::mt19937 generator(seed);
  Shares shares;
  for (int i = 0; i < ranks; ++i)
    shares.push_back(kLeastShare + static_cast<int32_t>(generator() % (kWholeShare - kLeastShare + 1)));
  shares[generator() % shares.size()] = kWholeShare;
  return shares;
}

TEST(Shards, EveryRowIsDealtOnceWhateverTheShares) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 8), first = static_cast<int>(seed / 8) % ranks,
              degree = 1 + static_cast<int>(seed / 3) % ranks;
    const Shards shards(ranks, seed % 2 == 0 ? 64 : 16, first, degree, random_shares(ranks, seed));
    for (int32_t tokens : {1, 7, 16 * degree - 1, 16 * degree, 100, 777, 64 * degree, 1000, 5000}) {
      std::vector<int> seen(static_cast<size_t>(tokens));
      for (int rank = 0; rank < ranks; ++rank) {
        int32_t last = 99;
        for (const Stretch& run : shards.rows(rank, {100, 100 + tokens})) {
          EXPECT_GT(run.begin, last);
          EXPECT_LT(run.begin, run.end);
          last = run.end;
          for (int32_t p = run.begin; p < run.end; ++p) ++seen[static_cast<size_t>(p - 100)];
        }
      }
      ASSERT_EQ(seen, std::vector<int>(seen.size(), 1)) << seed << ", " << tokens << " tokens";
    }
  }
}

TEST(Shards, EqualSharesAndFewTokensAreDealtOutEvenly) {
  for (int ranks : {2, 3, 8}) {
    const Shards even(ranks, 64), alike(ranks, 64, 0, ranks, Shares(static_cast<size_t>(ranks), kWholeShare / 3)),
        unlike(ranks, 64, 0, ranks, random_shares(ranks, 5));
    for (int most : {1, 2, 15, 16, 50, 99, 127, 128, 300, 512})
      EXPECT_EQ(alike.step_tokens(most), even.step_tokens(most));
    for (int32_t tokens : {1, 5, 15 * ranks, 16 * ranks, 100, 777, 1000, 5000})
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(alike.rows(rank, {7, 7 + tokens}), even.rows(rank, {7, 7 + tokens}));
        EXPECT_EQ(unlike.rows(rank, {7, 7 + tokens}) == even.rows(rank, {7, 7 + tokens}), tokens < 16 * ranks)
            << tokens << " on " << ranks;
      }
  }
}

// Shares are of ranks, whichever of them a sequence begins at; and of all parts of a prompt.
TEST(Shards, RowsAndWorkFollowTheShares) {
  const Shares shares = {kWholeShare / 4, kWholeShare, kWholeShare / 2, kWholeShare};
  for (int first = 0; first < 4; ++first) {
    const Shards shards(4, 64, first, 4, shares);
    const int32_t tokens = shards.step_tokens(512);
    EXPECT_EQ(tokens, 512 * 11 / 4);
    std::vector<double> pairs;
    for (int rank = 0; rank < 4; ++rank) {
      const auto runs = shards.rows(rank, {0, tokens});
      EXPECT_EQ(size_of(runs), 512 * shares[static_cast<size_t>(rank)] / kWholeShare);
      pairs.push_back(0);
      for (const Stretch& run : runs)
        for (int32_t p = run.begin; p < run.end; ++p) pairs.back() += p + 1;
    }
    EXPECT_NEAR(pairs[0] / pairs[1], 0.25, 0.01);
    EXPECT_NEAR(pairs[2] / pairs[3], 0.5, 0.02);
  }
  // Of those that take part, the quickest has whole units.
  EXPECT_EQ(Shards(4, 64, 2, 1, shares).step_tokens(512), 512);
  EXPECT_EQ(Shards(4, 64, 3, 2, shares).step_tokens(512), 512 + 128);
}

// Pairs of query and key: what a causal prompt costs.
TEST(Shards, CausalWorkIsBalanced) {
  const Shards shards(8, 64);
  double least = 1e18, most = 0;
  for (int rank = 0; rank < 8; ++rank) {
    double pairs = 0;
    for (const Stretch& run : shards.rows(rank, {0, 65536}))
      for (int32_t p = run.begin; p < run.end; ++p) pairs += p + 1;
    least = std::min(least, pairs);
    most = std::max(most, pairs);
  }
  EXPECT_LT(most / least, 1.001);
}

TEST(Shards, ShortStepsAreTheClassicalZigzag) {
  const Shards shards(4, 64);
  EXPECT_EQ(shards.rows(0, {0, 80}), (std::vector<Stretch>{{0, 10}, {70, 80}}));
  EXPECT_EQ(shards.rows(3, {0, 80}), (std::vector<Stretch>{{30, 50}}));
  EXPECT_EQ(shards.rows(2, {5, 7}), std::vector<Stretch>());
}

std::vector<Stretch> kept(const Shards& shards, int rank, Stretch of) {
  std::vector<Stretch> runs;
  for (const KvShare::Run& run : shards.share(rank).runs(of.begin, of.end, 64)) runs.push_back({run.begin, run.end});
  return runs;
}

TEST(Shards, SegmentsAreKeptInTurn) {
  const Shards shards(3, 64);
  EXPECT_EQ(shards.segment_tokens(), 1024);
  EXPECT_EQ(kept(shards, 1, {0, 5000}), (std::vector<Stretch>{{1024, 2048}, {4096, 5000}}));
  EXPECT_EQ(kept(shards, 0, {100, 200}), (std::vector<Stretch>{{100, 200}}));
  EXPECT_EQ(kept(shards, 2, {100, 200}), std::vector<Stretch>());
  EXPECT_EQ(shards.keeper_of(3 * 1024), 0);
}

TEST(Shards, OnlyAsManyRanksAsTheDegreeTakePart) {
  for (int first : {0, 2, 3})
    for (int degree : {1, 2, 3, 4}) {
      const Shards shards(4, 64, first, degree);
      std::vector<int> keepers(5000, -1), rows(5000, -1);
      for (int rank = 0; rank < 4; ++rank) {
        const bool takes_part = (rank - first + 4) % 4 < degree;
        EXPECT_EQ(!kept(shards, rank, {0, 5000}).empty(), takes_part);
        for (const Stretch& run : kept(shards, rank, {0, 5000}))
          std::fill(keepers.begin() + run.begin, keepers.begin() + run.end, rank);
        for (const Stretch& run : shards.rows(rank, {0, 5000})) {
          EXPECT_TRUE(takes_part);
          std::fill(rows.begin() + run.begin, rows.begin() + run.end, rank);
        }
        size_t pages = 0;
        for (size_t page = 0; page < 79; ++page) {
          EXPECT_EQ(shards.share(rank).pages_of(page), pages);
          pages += shards.keeper_of(static_cast<int32_t>(page) * 64) == rank ? 1 : 0;
        }
      }
      for (int32_t at = 0; at < 5000; ++at) {
        EXPECT_EQ(keepers[static_cast<size_t>(at)], shards.keeper_of(at));
        EXPECT_GE(rows[static_cast<size_t>(at)], 0);
      }
    }
}

TEST(Shards, StepsFillRanksAndNoMore) {
  for (int ranks : {1, 2, 3, 5, 8})
    for (uint32_t seed : {0, 1, 2, 3})  // 0: alike
      for (int most : {1, 2, 3, 16, 17, 50, 99, 127, 128, 130, 300, 512}) {
        const Shards shards(ranks, 64, 0, ranks, seed == 0 ? Shares() : random_shares(ranks, seed));
        const int32_t full = shards.step_tokens(most);
        const int32_t rows = most < 128 ? std::max(1, most / 2 * 2) : most / 64 * 64;
        if (seed == 0 || most >= 128) {
          EXPECT_EQ(shards.most_rows(full), rows) << ranks << " " << most << " " << seed;
        } else if (most >= 50) {
          EXPECT_GE(shards.most_rows(full), rows * 9 / 10) << ranks << " " << most << " " << seed;
        }
        for (int32_t tokens = 1; tokens <= full; tokens += std::max(1, full / 97))
          for (int rank = 0; rank < ranks; ++rank)
            ASSERT_LE(size_of(shards.rows(rank, {7, 7 + tokens})), most) << ranks << " " << most << " " << tokens;
      }
}

}  // namespace
}  // namespace godwit::dist
