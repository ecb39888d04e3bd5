// Bases of weights: eigenvectors, and what they are good for on the built-in model.
#include "eval/weight_bases.h"

#include <random>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "kv/codec_tables_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(WeightBases, EigenvectorsOfASymmetricMatrix) {
  constexpr size_t kSize = 24;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> matrix(kSize * kSize);
  for (size_t i = 0; i < kSize; ++i)
    for (size_t j = 0; j <= i; ++j) matrix[i * kSize + j] = matrix[j * kSize + i] = normal(random);
  const Eigenvectors found = eigenvectors(matrix, kSize);
  for (size_t n = 0; n < kSize; ++n) {
    if (n > 0) {
      EXPECT_LE(found.values[n], found.values[n - 1]);
    }
    const double* row = &found.rows[n * kSize];
    double length = 0;
    for (size_t i = 0; i < kSize; ++i) {
      double product = 0;
      for (size_t j = 0; j < kSize; ++j) product += matrix[i * kSize + j] * row[j];
      EXPECT_NEAR(product, found.values[n] * row[i], 1e-9);
      length += row[i] * row[i];
    }
    EXPECT_NEAR(length, 1, 1e-12);
  }
}

TEST(WeightBases, HaveTheShapeAndRopeOfTheModel) {
  for (const char* model : {"qwen3", "gemma2.gguf"}) {  // with a norm behind K, and with pairs; two layers
    const Engine engine = open(options_for(model));
    const WeightBases bases = value_of(fit_weight_bases(engine));
    ASSERT_EQ(bases.tables.size(), 3U) << model;
    const std::string path = testing::TempDir() + "weight_bases.gguf";
    ASSERT_TRUE(write_codec_tables("xquant", model, bases.settings, bases.tables, path));
    EngineOptions options = options_for(model);
    options.kv_codec = "xquant:k=16,v=16,rank=1,last=0,file=" + path;
    EXPECT_TRUE(Engine::open(options).has_value()) << model;
  }
}

TEST(WeightBases, StopWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  expect_error(fit_weight_bases(open(options_for("qwen3")), stop.get_token()), ErrorCode::kCancelled, "was stopped");
}

// Coordinates that the weights suggest leave more in the strong half than others do; and RoPE has to be undone for it.
TEST(WeightBases, OfAModelLeaveItsLogitsWhereTheyAre) {
  EngineOptions options;
  options.threads = 2;
  options.context_tokens = 1024;
  const auto first = prompt(500), rest = prompt(8, 5);
  const WeightBases fitted = value_of(fit_weight_bases(open(options)));
  const auto want = logits_of(open(options), first, rest);
  const std::string path = testing::TempDir() + "weight_bases.gguf";
  auto off = [&](const std::vector<CodecTable>& tables) {
    EXPECT_TRUE(write_codec_tables("xquant", "builtin", fitted.settings, tables, path));
    options.kv_codec = "xquant:k=16,v=16,rest=0,last=0,file=" + path;
    return distance(logits_of(open(options), first, rest), want);
  };
  const double best = off(fitted.tables);
  auto others = fitted.tables, still = fitted.tables;
  for (size_t i = 0; i < 2; ++i)
    std::rotate(others[i].numbers.begin(), others[i].numbers.begin() + 64 * 64, others[i].numbers.end());
  std::fill(still[2].numbers.begin(), still[2].numbers.end(), 0.0f);
  EXPECT_LT(best, 0.8 * off(others)) << "bases of other heads";
  EXPECT_LT(best, 0.9 * off(still)) << "without RoPE";
}

}  // namespace
}  // namespace godwit
