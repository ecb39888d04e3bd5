// Over any number of ranks, by either way, attention has the bits of one rank.
#include <numeric>

#include "dist/ring_testing.h"

namespace godwit::dist {
namespace {

using namespace testing;

// Pages of 16 tokens make segments of 256. A long prompt, a short one, tokens one by one, and a prompt again.
std::vector<RingStep> conversation(RingMode mode) {
  return {{{0, 700}, mode},
          {{700, 1100}, mode},
          {{1100, 1103}, mode},
          {{1103, 1104}, RingMode::kPassQ},
          {{1104, 1105}, RingMode::kPassQ},
          {{1105, 1300}, mode}};
}

struct Degree {
  int ranks, heads, kv_heads;
};

class RingDegrees : public ::testing::TestWithParam<Degree> {};

TEST_P(RingDegrees, BothWaysGiveTheBitsOfOneRank) {
  RingCase c;
  c.ranks = GetParam().ranks;
  c.heads = GetParam().heads;
  c.kv_heads = GetParam().kv_heads;
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    const auto steps = conversation(mode);
    const RingRun run = together(c, steps);
    ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
    EXPECT_EQ(run.outputs, alone(c, steps)) << ring_mode_name(mode);
  }
}

// So many segments that every rank keeps some, keys and values come in several rounds, and each half of the buffers is
// used again. Messages are read late, as from memory that a network card reads: what still lies there must not change.
TEST_P(RingDegrees, EveryRankKeepsSomeAndBuffersAreUsedAgain) {
  RingCase c;
  c.ranks = GetParam().ranks;
  c.heads = GetParam().heads;
  c.kv_heads = GetParam().kv_heads;
  c.layers = 1;
  const int32_t tokens = 256 * c.ranks * 3 - 100;
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ})
    for (bool overlap : {true, false}) {
      c.options.overlap = overlap;
      const std::vector<RingStep> steps = {
          {{0, tokens - 300}, mode}, {{tokens - 300, tokens - 1}, mode}, {{tokens - 1, tokens}, RingMode::kPassQ}};
      const RingRun run = together(c, steps, {}, {.leaves_lying = true});
      ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
      EXPECT_EQ(run.outputs, alone(c, steps)) << ring_mode_name(mode) << " " << overlap;
      for (size_t kept : run.kept_slots) EXPECT_GE(kept, 512U);
    }
}

INSTANTIATE_TEST_SUITE_P(Degrees, RingDegrees,
                         ::testing::Values(Degree{1, 4, 1}, Degree{2, 2, 2}, Degree{2, 4, 1}, Degree{2, 16, 1},
                                           Degree{3, 4, 4}, Degree{3, 8, 2}, Degree{4, 4, 1}, Degree{4, 16, 1},
                                           Degree{8, 2, 2}, Degree{8, 8, 2}, Degree{8, 16, 1}),
                         [](const auto& test) {
                           return fmt::format("{}ranks_gqa{}", test.param.ranks,
                                              test.param.heads / test.param.kv_heads) +
                                  (test.param.kv_heads > 1 ? "_kv" + std::to_string(test.param.kv_heads) : "");
                         });

TEST(RingAttention, FewerTokensThanRanks) {
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    RingCase c;
    c.ranks = 8;
    const std::vector<RingStep> steps = {{{0, 1}, mode}, {{1, 4}, mode}, {{4, 15}, mode}, {{15, 31}, mode}};
    const RingRun run = together(c, steps);
    ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
    EXPECT_EQ(run.outputs, alone(c, steps)) << ring_mode_name(mode);
    EXPECT_EQ(run.kept_slots, (std::vector<size_t>{31, 0, 0, 0, 0, 0, 0, 0}));
  }
}

TEST(RingAttention, ASequenceMayBeginAtAnyRank) {
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    RingCase c;
    c.ranks = 3;
    const auto steps = conversation(mode);
    const Outputs want = alone(c, steps);
    for (c.first = 1; c.first < c.ranks; ++c.first) {
      const RingRun run = together(c, steps);
      ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
      EXPECT_EQ(run.outputs, want) << ring_mode_name(mode) << " " << c.first;
      // Segments of 256 of 1,300 tokens: two each, the last of them not full.
      std::vector<size_t> kept = {512, 512, 276};
      std::rotate(kept.begin(), kept.end() - c.first, kept.end());
      EXPECT_EQ(run.kept_slots, kept);
    }
  }
}

TEST(RingAttention, UnequalSharesGiveTheSameBits) {
  for (const Shares& shares : {Shares{4096, 1500, 512}, {512, 4096, 4096}, {3001, 4096, 2777}})
    for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ})
      for (bool shared : {false, true}) {
        RingCase c;
        c.ranks = 3;
        const auto steps = conversation(mode);
        const Outputs want = alone(c, steps);
        c.shares = shares;
        c.shared = shared;
        for (const auto& [first, degree] : {std::pair(0, 3), {2, 3}, {1, 2}}) {
          c.first = first, c.degree = degree;
          const RingRun run = together(c, steps);
          ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
          EXPECT_EQ(run.outputs, want) << ring_mode_name(mode) << " " << shared << " " << first;
          // Steps of 3 and of single tokens are dealt out evenly; what is kept follows positions.
          const auto rows = [&](int rank) { return static_cast<double>(run.times[static_cast<size_t>(rank)].rows); };
          const int one = first, other = (first + 1) % 3;
          const double wanted =
              static_cast<double>(shares[static_cast<size_t>(one)]) / shares[static_cast<size_t>(other)];
          EXPECT_NEAR(rows(one) / rows(other) / wanted, 1, 0.1);
          if (degree == 3) {
            std::vector<size_t> kept = {512, 512, 276};
            std::rotate(kept.begin(), kept.end() - first, kept.end());
            EXPECT_EQ(run.kept_slots, kept);
          }
        }
      }
}

TEST(RingAttention, EveryFormatTravelsAsItIsStored) {
  std::vector<uint64_t> pages;  // that were sent, as new ones and by pass-KV: as many of every format
  for (const KvFormat& format :
       {KvFormat{DType::kF16, 32, 16}, KvFormat{DType::kF32, 32, 16}, KvFormat{DType::kBF16, 32, 16},
        KvFormat{DType::kF16, 32, 16, 8, 8}, KvFormat{DType::kF16, 32, 16, 8, 4}}) {
    RingCase c;
    c.ranks = 3;
    c.format = format;
    for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      const auto steps = conversation(mode);
      const RingRun run = together(c, steps);
      ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
      EXPECT_EQ(run.outputs, alone(c, steps)) << ring_mode_name(mode) << " " << format.k_bits;
      if (mode != RingMode::kPassKv) continue;
      uint64_t bytes = 0;
      for (const auto& traffic : run.traffic)
        bytes += traffic[static_cast<size_t>(FrameKind::kSlots)].bytes +
                 traffic[static_cast<size_t>(FrameKind::kPages)].bytes;
      EXPECT_EQ(bytes % format.page_bytes(), 0U);
      pages.push_back(bytes / format.page_bytes());
      EXPECT_EQ(pages.back(), pages.front()) << format.k_bits;
    }
  }
}

// What is sealed, and who still reads it open, is decided by position, as on one rank: within steps, over segments, and
// while a rank gets no new tokens.
TEST(RingAttention, PagesAreSealedAsOnOneRank) {
  KvFormat codes{DType::kF16, 32, 16, 4, 4};
  codes.seals = true;
  KvFormat by_dim = codes, numbers{DType::kF16, 32, 16};
  by_dim.k_by_dim = true;
  numbers.seals = true;
  numbers.k_keep = numbers.v_keep = 16;
  for (const KvFormat& format : {codes, by_dim, numbers}) {
    for (const auto& [first, last] : {std::pair(0, 0), std::pair(16, 32), std::pair(304, 288)}) {
      RingCase c;
      c.ranks = 3;
      c.first = 1;
      c.format = format;
      c.format.open_first = first, c.format.open_last = last;
      for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        auto steps = conversation(mode);
        for (int32_t at = 1300; at < 1340; ++at) steps.push_back({{at, at + 1}, mode});
        steps.push_back({{1340, 1344}, mode});  // to the end of a page
        steps.push_back({{1344, 1345}, mode});
        const Outputs want = alone(c, steps);
        for (const Shares& shares : {Shares(), Shares{1000, 4096, 2222}}) {
          c.shares = shares;
          const RingRun run = together(c, steps);
          ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
          EXPECT_EQ(run.outputs, want) << ring_mode_name(mode) << " " << first << " " << last << " " << shares.size();
        }
      }
    }
  }
}

TEST(RingAttention, WindowsNeedOnlyTheSegmentsTheySee) {
  RingCase c;
  c.ranks = 2;
  c.window = 100;
  uint64_t windowed = 0, whole = 0;
  auto pages = [](const RingRun& run) {
    uint64_t bytes = 0;
    for (const auto& traffic : run.traffic) bytes += traffic[static_cast<size_t>(FrameKind::kPages)].bytes;
    return bytes;
  };
  for (RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
    const auto steps = conversation(mode);
    const RingRun run = together(c, steps);
    ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
    EXPECT_EQ(run.outputs, alone(c, steps)) << ring_mode_name(mode);
    windowed += pages(run);
  }
  c.window = 0;
  whole = pages(together(c, conversation(RingMode::kPassKv)));
  EXPECT_LT(windowed, whole);
  EXPECT_GT(windowed, 0U);
}

TEST(RingAttention, WithoutOverlapItIsTheSame) {
  RingCase c;
  c.ranks = 4;
  c.options.overlap = false;
  const auto steps = conversation(RingMode::kPassKv);
  const RingRun run = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  EXPECT_EQ(run.outputs, alone(c, steps));
}

TEST(RingAttention, OneStatePerRankIsNearlyTheSameForFewerBytes) {
  RingCase c;
  c.ranks = 2;
  const auto steps = conversation(RingMode::kPassQ);
  const Outputs want = alone(c, steps);
  auto states = [](const RingRun& run) { return run.traffic[0][static_cast<size_t>(FrameKind::kStates)].bytes; };
  const RingRun exact = together(c, steps);
  c.options.exact = false;
  const RingRun run = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  EXPECT_LT(states(run), states(exact) * 3 / 4);
  EXPECT_NE(run.outputs, want);
  for (size_t position = 0; position < want.size(); ++position) {
    ASSERT_EQ(run.outputs[position].size(), want[position].size());
    for (size_t i = 0; i < want[position].size(); ++i) ASSERT_NEAR(run.outputs[position][i], want[position][i], 1e-5);
  }
}

TEST(RingAttention, KeptTokensDifferByASegmentAtMost) {
  RingCase c;
  c.ranks = 4;
  c.layers = 1;
  const std::vector<RingStep> steps = {{{0, 1900}}, {{1900, 2900}}};
  const RingRun run = together(c, steps);
  ASSERT_NO_FATAL_FAILURE(expect_all_well(run));
  EXPECT_EQ(std::accumulate(run.kept_slots.begin(), run.kept_slots.end(), size_t{0}), 2900U);
  const auto [least, most] = std::minmax_element(run.kept_slots.begin(), run.kept_slots.end());
  EXPECT_LE(*most - *least, 256U);
}

// What travels, against the formulas: each rank's segments to all others; queries to all others; a state per segment.
TEST(RingAttention, BytesAreThoseOfTheFormulas) {
  RingCase c;
  c.ranks = 4;
  c.heads = 8;
  c.kv_heads = 2;
  c.layers = 3;
  constexpr uint64_t kSegments = 8, kTokens = kSegments * 256;
  const uint64_t ranks = 4, layers = 3, token_bytes = 2 * 2 * 32 * 2, states = 8 * (32 + 2) * 4, query = 8 * 32 * 4;
  auto sum = [](const RingRun& run, FrameKind kind) {
    uint64_t bytes = 0;
    for (const auto& traffic : run.traffic) bytes += traffic[static_cast<size_t>(kind)].bytes;
    return bytes;
  };
  const RingRun kv = together(c, {{{0, kTokens}, RingMode::kPassKv}});
  ASSERT_NO_FATAL_FAILURE(expect_all_well(kv));
  for (const auto& traffic : kv.traffic)
    EXPECT_EQ(traffic[static_cast<size_t>(FrameKind::kPages)].bytes,
              layers * (ranks - 1) * (kTokens / ranks) * token_bytes);
  EXPECT_EQ(sum(kv, FrameKind::kSlots), layers * kTokens * token_bytes * (ranks - 1) / ranks);
  EXPECT_EQ(sum(kv, FrameKind::kQueries) + sum(kv, FrameKind::kStates), 0U);

  constexpr uint64_t kNew = 64;
  const RingRun q = together(c, {{{0, kTokens}, RingMode::kPassKv}, {{kTokens, kTokens + kNew}, RingMode::kPassQ}});
  ASSERT_NO_FATAL_FAILURE(expect_all_well(q));
  EXPECT_EQ(sum(q, FrameKind::kPages), sum(kv, FrameKind::kPages));
  EXPECT_EQ(sum(q, FrameKind::kQueries), layers * kNew * query * (ranks - 1));
  // Each row gets a state of every segment, its own step's too, but for those that its own rank keeps.
  const uint64_t all = kNew * (kSegments + 1), own = kNew * kSegments / ranks + kNew / ranks;
  EXPECT_EQ(sum(q, FrameKind::kStates), layers * states * (all - own));
}

}  // namespace
}  // namespace godwit::dist
