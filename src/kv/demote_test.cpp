// Policies that demote: what the budget does not keep is in sealed pages, once rounded, and nothing is lost.
#include <algorithm>

#include "kv/toy_model.h"

namespace godwit::kv_test {
namespace {

KvFormat by_dim(int last = 0) {
  KvFormat format{.dtype = DType::kF16, .head_dim = 64, .page_tokens = 16, .k_bits = 2, .v_bits = 4};
  format.k_by_dim = format.seals = true;
  format.open_last = last;
  return format;
}
KvFormat by_token() {
  KvFormat format{.dtype = DType::kF16, .head_dim = 32, .page_tokens = 16, .k_bits = 4, .v_bits = 4, .seals = true};
  format.open_first = 16;
  return format;
}
KvFormat sparse() {
  return {.dtype = DType::kF16, .head_dim = 32, .page_tokens = 16, .k_keep = 16, .v_keep = 10, .seals = true};
}

struct Case {
  const char* policy;
  const char* name;
  KvFormat format;
};
const Case kCases[] = {
    {"mikv", "mikv_by_dim", by_dim(16)},
    {"mikv:base=snapkv:window=8", "mikv_snapkv_by_token", by_token()},
    {"mikv:base=infinipot", "mikv_infinipot_by_dim", by_dim()},
    {"mikv:base=random:sinks=1;recent=4", "mikv_random_sparse", sparse()},
    {"zipcache", "zipcache_by_dim", by_dim()},
    {"zipcache", "zipcache_by_token", by_token()},
};

class DemoteTest : public testing::TestWithParam<Case> {
 protected:
  KvRetentionOptions options(const char* budget, const char* trigger, int chunk = 64) const {
    return {.policy = GetParam().policy, .budget = budget, .trigger = trigger, .prefill_chunk = chunk};
  }
  Toy toy(const KvRetentionOptions& options) const { return Toy(options, 1, kToyBytes, GetParam().format); }
};

template <class Visit>
void each_head(Visit&& visit) {
  for (int layer = 0; layer < kToyShape.layers; ++layer)
    for (int head = 0; head < kToyShape.kv_heads; ++head) visit(layer, head);
}

TEST_P(DemoteTest, NothingIsLostAndTheBudgetIsWhatStaysOpen) {
  for (const char* budget : {"48", "25%"}) {
    for (const char* trigger : {"prefill", "chunk", "24"}) {
      SCOPED_TRACE(fmt::format("{} {}", budget, trigger));
      Toy toy = this->toy(options(budget, trigger));
      const bool bounded = toy.rules().most_between() > 0;
      const auto look = [&](bool fired) {
        const auto tokens = static_cast<size_t>(toy.sequence().next_position());
        const size_t allowed = toy.rules().slots_per_head(toy.sequence().next_position(), kToyShape);
        each_head([&](int layer, int head) {
          std::vector<int32_t> positions = toy.positions(layer, head);
          std::sort(positions.begin(), positions.end());
          ASSERT_EQ(positions.size(), tokens);
          for (size_t i = 0; i < tokens; ++i) ASSERT_EQ(positions[i], static_cast<int32_t>(i));
          const size_t open = tokens - toy.sequence().demoted(layer, head);
          EXPECT_GE(open, std::min(tokens, allowed));
          if (fired || bounded) {
            EXPECT_LT(open, allowed + 16 + (fired ? 0 : 64));
          }
        });
      };
      for (int done = 0; done < 300; done += 64) {
        ASSERT_TRUE(toy.step(std::min(64, 300 - done), done + 64 >= 300));
        look(toy.rules().trigger.prompt_end && (bounded || done + 64 >= 300));
      }
      // Resident bytes: every page once, in its form.
      const KvFormat& format = toy.rules().format;
      size_t bytes = 0;
      each_head([&](int layer, int head) {
        const size_t sealed = toy.sequence().demoted(layer, head) / 16;
        bytes += sealed * format.page_bytes() + (19 - sealed) * format.open_format().page_bytes();
      });
      EXPECT_EQ(toy.pool().bytes_in_use(), bytes + toy.pool().aux_in_use() * format.aux_bytes());
      for (int i = 0; i < 70; ++i) ASSERT_TRUE(toy.step(1));
      look(false);
    }
  }
}

// What stays open is what was written, in f16; what was demoted is off by half a scale, whatever came after.
TEST_P(DemoteTest, NumbersAreExactOrRoundedOnce) {
  Toy toy = this->toy(options("64", "40", 40)), once = this->toy(options("64", "prefill", 40));
  for (Toy* each : {&toy, &once}) each->prompt(280, 40);
  const KvFormat& format = toy.rules().format;
  const int dim = format.head_dim;
  each_head([&](int layer, int head) {
    const auto [keys, values] = toy.read(layer, head);
    for (size_t slot = 0; slot < toy.sequence().slots(layer, head); ++slot) {
      const bool open = slot >= toy.sequence().demoted(layer, head);
      const int32_t position = toy.sequence().position(layer, head, slot);
      for (int d = 0; d < dim; ++d) {
        const size_t at = slot * static_cast<size_t>(dim) + static_cast<size_t>(d);
        const float k = Toy::key(layer, position, head, d), v = Toy::value(layer, position, head, d);
        if (format.is_sparse() && !open) {
          ASSERT_TRUE(keys[at] == 0 || std::abs(keys[at] - k) < 1e-3F);
          continue;
        }
        // Numbers lie in [-1, 1]: a scale is at most 2 / (levels - 1), and rounded up to f16.
        const auto most = [&](int bits) { return open ? 5e-4F : 1.01F / static_cast<float>((1 << bits) - 1); };
        ASSERT_NEAR(keys[at], k, most(format.k_bits)) << (open ? "open" : "sealed");
        ASSERT_NEAR(values[at], v, most(format.v_bits)) << (open ? "open" : "sealed");
      }
    }
  });
}

TEST_P(DemoteTest, AWholeBudgetDemotesNothing) {
  Toy toy = this->toy(options("100%", "chunk", 50));
  toy.prompt(170, 50);
  EXPECT_EQ(toy.pool().bytes_in_use(), 6 * 11 * toy.rules().format.open_format().page_bytes());
  each_head([&](int layer, int head) { EXPECT_EQ(toy.sequence().demoted(layer, head), 0U); });
}

TEST_P(DemoteTest, ForksGoTheirOwnWays) {
  Toy toy = this->toy(options("48", "40", 40)), alone = this->toy(options("48", "40", 40));
  for (Toy* each : {&toy, &alone}) each->prompt(120, 40);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(toy.step(1) && alone.step(1));
  {
    Toy fork(toy);
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(fork.step(1) && alone.step(1));
    EXPECT_EQ(fork.positions(), alone.positions());
    EXPECT_EQ(fork.read(1, 1), alone.read(1, 1));
    EXPECT_NE(fork.positions(), toy.positions());
  }
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(toy.step(1));
  EXPECT_EQ(toy.positions(), alone.positions());
  EXPECT_EQ(toy.read(1, 1), alone.read(1, 1));
}

TEST_P(DemoteTest, TruncatedToAfterItOrToNothing) {
  Toy toy = this->toy(options("25%", "prefill")), other = this->toy(options("25%", "prefill"));
  for (Toy* each : {&toy, &other}) each->prompt(200, 64);
  EXPECT_EQ(toy.sequence().shortest_exact(), 200);
  EXPECT_EQ(toy.retention().shortest_exact(), 200);
  const auto before = toy.positions();
  if (toy.rules().method.policy->needs().queries != KvNeeds::Queries::kAll) {
    ASSERT_TRUE(toy.step(40));
    toy.truncate(210);
    ASSERT_TRUE(toy.step(5) && other.step(15));
    EXPECT_EQ(toy.positions(), other.positions());
    EXPECT_EQ(toy.read(2, 0), other.read(2, 0));
  }
  toy.truncate(0);
  EXPECT_EQ(toy.sequence().shortest_exact(), 0);
  EXPECT_EQ(toy.pool().bytes_in_use(), 0U);
  toy.prompt(200, 64);
  EXPECT_EQ(toy.positions(), before);
}

INSTANTIATE_TEST_SUITE_P(Policies, DemoteTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

// With the least budget that there is, pages are the ones that the codec alone would seal, with the same contents.
TEST(Demote, WithoutABudgetItIsTheCodec) {
  for (int last : {0, 32}) {
    const KvFormat format = by_dim(last);
    const KvRetentionOptions neutral{.policy = "streaming", .budget = "100%", .trigger = "chunk", .prefill_chunk = 64};
    Toy codec(neutral, 1, kToyBytes, format);
    Toy toy({.policy = "mikv:base=streaming:sinks=0", .budget = last == 0 ? "1" : "32", .trigger = "16"}, 1, kToyBytes,
            format);
    for (Toy* each : {&codec, &toy}) each->prompt(250, 50);
    EXPECT_EQ(toy.positions(), codec.positions());
    each_head([&](int layer, int head) {
      EXPECT_EQ(toy.sequence().demoted(layer, head) / 16, format.sealed_end(250));
      EXPECT_EQ(toy.read(layer, head), codec.read(layer, head));
    });
    EXPECT_EQ(toy.pool().bytes_in_use(), codec.pool().bytes_in_use());
  }
}

TEST(Demote, TheNewestAndTheFirstAreSparedAsTheCodecSays) {
  KvFormat format = by_dim(32);
  format.open_first = 16;
  Toy toy({.policy = "mikv:base=random:sinks=0;recent=1", .budget = "20%", .trigger = "chunk", .prefill_chunk = 64}, 1,
          kToyBytes, format);
  toy.prompt(200, 64);
  each_head([&](int layer, int head) {
    const std::vector<int32_t> all = toy.positions(layer, head);
    const std::vector<int32_t> open(all.begin() + static_cast<ptrdiff_t>(toy.sequence().demoted(layer, head)),
                                    all.end());
    EXPECT_LT(open.size(), 48U + 16);
    for (int32_t position : {0, 15, 168, 199})
      EXPECT_TRUE(std::binary_search(open.begin(), open.end(), position)) << position;
  });
}

// Attention that is the same for everything seen makes the oldest the heaviest by sums, and all of them equal here.
TEST(Demote, SaliencyHasNoBiasTowardsTheOldest) {
  const auto zip = make_kv_policy("zipcache", kToyShape), h2o = make_kv_policy("h2o:recent=0", kToyShape);
  KvHeadView view;
  view.next_position = 100;
  view.budget = 50;
  std::vector<int32_t> positions;
  std::vector<float> mass;
  for (int32_t p = 0; p < 100; ++p) {
    positions.push_back(p);
    mass.push_back(0.01F * static_cast<float>(100 - p));
  }
  view.positions = positions;
  view.mass = mass;
  std::vector<float> scores(100);
  zip->policy->score(view, scores);
  for (float score : scores) EXPECT_NEAR(score, 0.01F, 1e-6F);
  h2o->policy->score(view, scores);
  EXPECT_GT(scores[0], 50 * scores[99]);
}

// Entries change their places at every look; what was seen of them goes along.
TEST(Demote, SumsOfAttentionFollowTheirEntries) {
  const KvFormat format{.dtype = DType::kF16,
                        .head_dim = kToyFormat.head_dim,
                        .page_tokens = 16,
                        .k_bits = 8,
                        .v_bits = 8,
                        .seals = true};
  Toy toy({.policy = "mikv:base=h2o:recent=0", .budget = "48", .trigger = "64", .prefill_chunk = 64}, 1, kToyBytes,
          format);
  const auto open = [&] {
    const std::vector<int32_t> all = toy.positions(1, 1);
    return std::vector<int32_t>(all.begin() + static_cast<ptrdiff_t>(toy.sequence().demoted(1, 1)), all.end());
  };
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(toy.step(64));
  std::vector<int32_t> candidates = open();
  ASSERT_EQ(candidates.size(), 48U);
  for (int32_t position = 128; position < 192; ++position) candidates.push_back(position);
  ASSERT_TRUE(toy.step(64));
  std::vector<double> sums(192);
  for (int32_t query = 0; query < 192; ++query) {
    const auto weights = Toy::weights(1, 1, query);
    for (size_t p = 0; p < weights.size(); ++p) sums[p] += weights[p];
  }
  std::sort(candidates.begin(), candidates.end(),
            [&](int32_t a, int32_t b) { return sums[static_cast<size_t>(a)] > sums[static_cast<size_t>(b)]; });
  std::vector<int32_t> want(candidates.begin(), candidates.begin() + 48), both;
  std::sort(want.begin(), want.end());
  const std::vector<int32_t> kept = open();
  std::set_intersection(kept.begin(), kept.end(), want.begin(), want.end(), std::back_inserter(both));
  EXPECT_EQ(kept.size(), 48U);
  EXPECT_GE(both.size(), 46U) << "but for rounding";
}

TEST(Demote, WhatItNeedsIsSaid) {
  auto refused = [](const char* policy, const char* budget, const KvFormat& format, std::string_view mention) {
    auto rules =
        KvRetentionRules::make({.policy = policy, .budget = budget, .trigger = ""}, kToyShape, format, kToyHeads);
    ASSERT_FALSE(rules.has_value()) << mention;
    EXPECT_NE(rules.error().message.find(mention), std::string::npos) << rules.error().message;
  };
  refused("mikv", "25%", kToyFormat, "give kivi, mustafar, or q4:last=64");
  refused("zipcache", "25%", kToyFormat, "give kivi, mustafar, or q4:last=64");
  refused("mikv", "1MiB", by_dim(), "no number of bytes holds");
  refused("mikv", "", by_dim(), "needs a budget");
  refused("mikv", "16", by_dim(32), "needs at least 32");
  refused("mikv:base=mikv", "25%", by_dim(), "itself");
  refused("mikv:base=zipcache", "25%", by_dim(), "does not choose");
  refused("mikv:base=d2o", "25%", by_dim(), "does not choose");
  refused("kvcrush:base=mikv", "25%", by_dim(), "drops nothing by a budget");
}

TEST(Demote, CopiesThatDoNotFitAreErrorsAndTriedAgain) {
  const KvFormat format = by_dim();
  const size_t pages = 6 * 6, bytes = pages * format.open_format().page_bytes() + 100;
  Toy toy({.policy = "mikv:base=random:sinks=0;recent=1", .budget = "40", .trigger = "prefill"}, 1, bytes, format);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(toy.step(32));
  auto fork = std::make_unique<Toy>(toy);
  Status status = toy.step(0, true);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("demoting"), std::string::npos) << status.error().message;
  EXPECT_TRUE(toy.sequence().check_integrity() && toy.pool().check_integrity());
  fork.reset();
  status = toy.step(0);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(toy.sequence().demoted(1, 1), 48U);
}

}  // namespace
}  // namespace godwit::kv_test
