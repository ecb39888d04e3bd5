// Scores of heads: of the model's shape, between what attention can give, the same every time.
#include "eval/head_scores.h"

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

std::string book() {
  return journal(400);
}

TEST(HeadScores, ByRepeats) {
  EngineOptions options = options_for("qwen3");
  const HeadScores scores = value_of(scores_by_repeats(open(options), {.tokens = 64, .copies = 3}));
  ASSERT_EQ(scores.size(), 2U);
  for (const auto& layer : scores) {
    ASSERT_EQ(layer.size(), 1U);
    // Sixteen queries, each with a mass of one; an even spread over 192 tokens gives two copies some hundredth of it.
    EXPECT_GT(layer[0], 16 * 0.002);
    EXPECT_LT(layer[0], 16);
  }
  options.prefill_chunk = 50;
  const HeadScores again = value_of(scores_by_repeats(open(options), {.tokens = 64, .copies = 3}));
  for (size_t layer = 0; layer < 2; ++layer) EXPECT_NEAR(again[layer][0], scores[layer][0], 1e-4) << "chunks";
  EXPECT_NE(value_of(scores_by_repeats(open(options), {.tokens = 64, .copies = 3, .seed = 2})), again);
  expect_error(scores_by_repeats(open(options), {.tokens = 64, .copies = 1}), ErrorCode::kInvalidArgument, "repeat");
}

TEST(HeadScores, ByFacts) {
  const Engine engine = open();
  FactScoreOptions few;
  few.length = 1200;
  few.facts = 4;
  few.samples = 1;
  const HeadScores scores = value_of(scores_by_facts(engine, book(), few));
  ASSERT_EQ(scores.size(), 2U);
  for (const auto& layer : scores) {
    EXPECT_GT(layer[0], 0);
    EXPECT_LT(layer[0], 4) << "four facts, each with a mass of one at most";
  }
  EXPECT_EQ(value_of(scores_by_facts(engine, book(), few)), scores);
}

TEST(HeadScores, GatesAreShares) {
  EXPECT_EQ(gates_from({{0.1, 5}, {3, 0.2}}), (HeadScores{{0, 0.75}, {0.5, 0.25}}));
  EXPECT_EQ(gates_from({{1, 1}, {1, 2}}), (HeadScores{{0, 0}, {0, 0.75}}));
}

}  // namespace
}  // namespace godwit
