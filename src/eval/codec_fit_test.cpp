// Side files of codecs, fitted: better than what is not, of the model's shape, the same every time.
#include "eval/codec_fit.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "backend/forms/product.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

std::string book() {
  return journal(400);
}

double mean_error(const std::vector<float>& points, size_t width, const std::vector<float>& centroids) {
  double sum = 0;
  for (size_t p = 0; p < points.size(); p += width) {
    const size_t c = nearest_centroid(centroids.data(), 256, &points[p], width);
    for (size_t i = 0; i < width; ++i) sum += std::pow(double{points[p + i]} - centroids[i * 256 + c], 2);
  }
  return sum / static_cast<double>(points.size());
}

TEST(CodecFit, CentroidsComeNearerToTheirPoints) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t width : {2, 4}) {
    std::vector<float> points(4000 * width);
    for (size_t i = 0; i < points.size(); ++i) points[i] = normal(random) * (i % width == 0 ? 10.0f : 1.0f);
    const double chosen = mean_error(points, width, fit_centroids(points, width, 0, 1));
    const double fitted = mean_error(points, width, fit_centroids(points, width, 12, 1));
    EXPECT_LT(fitted, 0.8 * chosen) << width;
  }
  // Fewer different points than centroids are all met.
  std::vector<float> few;
  for (int i = 0; i < 1000; ++i) few.push_back(static_cast<float>(i / 2 % 100)), few.push_back(1);
  EXPECT_LT(mean_error(few, 2, fit_centroids(few, 2, 12, 1)), 1e-12);
  EXPECT_EQ(fit_centroids({3.0f, 4.0f}, 2, 2, 1)[256], 4.0f);
}

// Codebooks that were fitted serve better than others: of the same shape, and drawn from what the model might do.
TEST(CodecFit, CodebooksOfAModelLeaveItsLogitsWhereTheyAre) {
  EngineOptions options;
  options.threads = 2;
  options.context_tokens = 1024;
  const auto first = prompt(500), rest = prompt(8, 5);
  const auto want = logits_of(open(options), first, rest);
  auto off = [&](const std::string& file) {
    options.kv_codec = "million:last=0,file=" + file;
    return distance(logits_of(open(options), first, rest), want);
  };
  CodebookFitOptions fit;
  fit.tokens = 600;
  fit.iterations = 4;
  int heads = 0;
  fit.on_progress = [&](int done, int total) {
    heads = done;
    EXPECT_EQ(total, 20);
  };
  options.kv_codec = "f16";
  std::vector<CodecTable> tables = value_of(fit_codebooks(open(options), book(), fit));
  EXPECT_EQ(heads, 20);
  const std::string path = testing::TempDir() + "codec_fit.gguf";
  ASSERT_TRUE(write_codec_tables("million", "builtin", {{"width", 2}}, tables, path));
  const double fitted = off(path);
  for (CodecTable& table : tables)
    std::rotate(table.numbers.begin(), table.numbers.begin() + 64 * 256, table.numbers.end());
  ASSERT_TRUE(write_codec_tables("million", "builtin", {{"width", 2}}, tables, path));
  EXPECT_LT(fitted, 0.5 * off(path)) << "books of other heads";
  EXPECT_LT(fitted, 0.5);
}

TEST(CodecFit, MeanSquaresOfQueries) {
  EngineOptions options = options_for("qwen3");
  QueryFitOptions fit;
  fit.tokens = 200;
  const auto tables = value_of(fit_queries(open(options), book(), fit));
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_EQ(tables[0].shape, (std::vector<int64_t>{2, 32}));
  ASSERT_EQ(tables[0].numbers.size(), 64U);
  for (float x : tables[0].numbers) EXPECT_GT(x, 0);
  options.prefill_chunk = 50;
  const auto again = value_of(fit_queries(open(options), book(), fit));
  for (size_t i = 0; i < 64; ++i)
    EXPECT_NEAR(again[0].numbers[i], tables[0].numbers[i], 1e-3 * tables[0].numbers[i]) << "chunks";
}

TEST(CodecFit, WhatCannotBeFittedIsRefused) {
  const Engine engine = open(options_for("qwen3"));
  expect_error(fit_queries(engine, "Too short.", {}), ErrorCode::kInvalidArgument, "too few");
  CodebookFitOptions few, three, four;
  few.tokens = 100, three.width = 3, four.width = 4;
  expect_error(fit_codebooks(engine, book(), few), ErrorCode::kInvalidArgument, "512 at least");
  expect_error(fit_codebooks(engine, book(), three), ErrorCode::kInvalidArgument, "2 or 4");
  expect_error(fit_codebooks(engine, book(), four), ErrorCode::kUnsupported, "multiple of 64");
}

}  // namespace
}  // namespace godwit
