#include "dist/ring_cost.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace godwit::dist {
namespace {

// Eight H100 of a node hold one KV head of Llama 3.1 405B each; four nodes; the constants that the paper's table of
// ring iterations shows (arXiv 2411.01783: sends 166 µs for 3.3 MB and 544 µs for 13.1 MB, all-to-all 424 and 1023 µs).
constexpr RingConstants kRdma = {{40e-6, 26e9}, {224e-6, 49.6e9}, 0, true};

RingWork work_of(double new_tokens, double cached_tokens) {
  constexpr double kRanks = 4, kQueryDim = 16 * 128;
  RingWork work;
  work.ranks = 4;
  work.attention_step_s = 4 * (new_tokens / kRanks) * ((cached_tokens + new_tokens / 2) / kRanks) * kQueryDim / 500e12;
  work.kv_bytes = (new_tokens + cached_tokens) / kRanks * 2 * 128 * 2;
  work.q_bytes = work.partial_bytes = new_tokens / kRanks * kQueryDim * 2;
  return work;
}

TEST(RingCost, MatchesThePublishedRingIterations) {
  const RingWork few = work_of(3200, 124800), some = work_of(12800, 115200);
  EXPECT_NEAR(few.attention_step_s, 414e-6, 10e-6);
  EXPECT_NEAR(some.attention_step_s, 1608e-6, 20e-6);
  EXPECT_NEAR(kRdma.send.seconds(few.q_bytes), 166e-6, 2e-6);
  EXPECT_NEAR(kRdma.send.seconds(some.q_bytes), 544e-6, 2e-6);
  EXPECT_NEAR(kRdma.send.seconds(few.kv_bytes), 627e-6, 45e-6);
  EXPECT_NEAR(kRdma.exchange.seconds(3 * few.partial_bytes), 424e-6, 5e-6);
  EXPECT_NEAR(kRdma.exchange.seconds(3 * some.partial_bytes), 1023e-6, 10e-6);
}

RingMode quickest(const RingWork& work, const RingConstants& link) {
  return std::min({RingMode::kPassKv, RingMode::kPassQ, RingMode::kAllGather}, [&](RingMode a, RingMode b) {
    return ring_mode_seconds(a, work, link) < ring_mode_seconds(b, work, link);
  });
}

TEST(RingCost, FewNewTokensPassQueriesAndManyPassKeys) {
  EXPECT_EQ(quickest(work_of(1280, 126720), kRdma), RingMode::kPassQ);
  EXPECT_EQ(quickest(work_of(12800, 115200), kRdma), RingMode::kPassKv);
  EXPECT_EQ(quickest(work_of(128000, 0), kRdma), RingMode::kPassKv);
}

TEST(RingCost, MessagesAreWaitedForOnlyWhereTheyTakeLongerThanAStep) {
  RingWork work{4, 1.0, 100, 10, 20};
  RingConstants link{{0.5, 1000}, {0.25, 100}, 0.125, true};
  EXPECT_DOUBLE_EQ(pass_kv_seconds(work, link), 4 + 3 * 0.125);                  // 0.6 s behind 1 s
  EXPECT_DOUBLE_EQ(pass_q_seconds(work, link), 4 + 3 * 0.125 + 0.25 + 3 * 0.2);  // the exchange is not hidden
  EXPECT_DOUBLE_EQ(all_gather_seconds(work, link), 0.25 + 3 * 1.0 + 4);          // one piece: no steps
  EXPECT_DOUBLE_EQ(decode_seconds(work, link), 3 * 0.51 + 1 + 0.25 + 3 * 0.2);
  work.kv_bytes = 1500;  // 2 s
  EXPECT_DOUBLE_EQ(pass_kv_seconds(work, link), 4 + 3 * (1 + 0.125));
  link.overlapped = false;
  EXPECT_DOUBLE_EQ(pass_kv_seconds(work, link), 4 + 3 * (2 + 0.125));
}

TEST(RingCost, OneRankOnlyComputes) {
  const RingWork work{1, 2.0, 1e9, 1e9, 1e9};
  const RingConstants link{{1, 1}, {1, 1}, 1, true};
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ, RingMode::kAllGather})
    EXPECT_EQ(ring_mode_seconds(mode, work, link), 2.0) << ring_mode_name(mode);
  EXPECT_EQ(decode_seconds(work, link), 2.0);
  EXPECT_EQ(quickest(work, link), RingMode::kPassKv);
}

TEST(RingCost, ShortStepsOverSlowLinksAreGathered) {
  const RingWork work{8, 1e-6, 1000, 4000, 4000};
  const RingConstants link{{50e-6, 1e9}, {80e-6, 1e9}, 0, true};
  EXPECT_EQ(quickest(work, link), RingMode::kAllGather);
}

}  // namespace
}  // namespace godwit::dist
