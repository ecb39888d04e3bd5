// Perplexity against the same sum taken by hand over Session::score.
#include "eval/perplexity.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

const std::string kText = [] {
  std::string text;
  for (int i = 0; i < 30; ++i) text += fmt::format("Line {} says {}. ", i, i * i);
  return text;
}();

// Windows of `window` tokens, each after `begin`; the first token of a window counts only where something comes before
// it.
double mean_by_hand(const Engine& engine, size_t window, size_t windows, std::span<const TokenId> begin) {
  const auto tokens = value_of(engine.tokenize(kText, {.add_bos = false}));
  double sum = 0;
  size_t counted = 0;
  for (size_t w = 0; w < windows; ++w) {
    const auto part = std::span(tokens).subspan(w * window, window);
    for (size_t i = begin.empty() ? 1 : 0; i < window; ++i) {  // one token at a time, from a fresh session each
      Session session = engine.start();
      append(session, joined(begin, part.first(i)));
      sum -= static_cast<double>(value_of(session.score(part.subspan(i, 1)))[0].logprob);
      ++counted;
    }
  }
  return sum / static_cast<double>(counted);
}

TEST(Perplexity, EqualsTheSumByHand) {
  const TokenId bos[] = {1};
  struct {
    const char* model;
    std::span<const TokenId> begin;
  } cases[] = {{"qwen3", {}}, {"llama", bos}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.model);
    const Engine engine = open(c.model);
    PerplexityOptions options;
    options.window = 24;
    options.max_windows = 3;
    std::vector<int64_t> done;
    options.on_progress = [&](int64_t now, int64_t) { done.push_back(now); };
    const PerplexityResult result = value_of(measure_perplexity(engine, kText, options));
    EXPECT_EQ(result.tokens, c.begin.empty() ? 3 * 23 : 3 * 24);
    EXPECT_NEAR(result.mean_nll, mean_by_hand(engine, 24, 3, c.begin), 1e-6);
    EXPECT_NEAR(result.perplexity, std::exp(result.mean_nll), 1e-9 * result.perplexity);
    EXPECT_EQ(done, (std::vector<int64_t>{24, 48, 72}));
  }
}

TEST(Perplexity, DropsTheRest) {
  const Engine engine = open();
  const auto count = static_cast<int64_t>(value_of(engine.tokenize(kText, {.add_bos = false})).size());
  PerplexityOptions options;
  options.window = 50;
  EXPECT_EQ(value_of(measure_perplexity(engine, kText, options)).tokens, count / 50 * 49);
}

TEST(Perplexity, RefusesWhatMakesNoSense) {
  const Engine engine = open();
  PerplexityOptions options;
  for (int window : {1, 0, -7}) {
    options.window = window;
    expect_error(measure_perplexity(engine, kText, options), ErrorCode::kInvalidArgument, "predicts nothing");
  }
  options.window = 2047;
  expect_error(measure_perplexity(engine, kText, options), ErrorCode::kInvalidArgument, "less than one window of 2047");
  expect_error(measure_perplexity(engine, "", options), ErrorCode::kInvalidArgument, "0 tokens");
  std::string text;
  for (int i = 0; i < 40; ++i) text += kText;
  options.window = 4000;
  expect_error(measure_perplexity(engine, text, options), ErrorCode::kExhausted, "context holds 2048");
  std::stop_source source;
  source.request_stop();
  options.window = 20;
  expect_error(measure_perplexity(engine, kText, options, source.get_token()), ErrorCode::kCancelled, "stopped");
}

}  // namespace
}  // namespace godwit
