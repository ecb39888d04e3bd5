#include "eval/divergence.h"

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

std::string text() {
  std::string all;
  for (int i = 0; i < 200; ++i) all += fmt::format("It was day {} of the journey. ", i * i);
  return all;
}

Engine engine_with(std::string codec, std::string policy, std::string budget) {
  EngineOptions options = options_for("qwen3");
  options.kv_codec = std::move(codec);
  options.kv_policy = std::move(policy);
  options.kv_budget = std::move(budget);
  options.prefill_chunk = 128;
  return open(options);
}

DivergenceOptions settings() {
  DivergenceOptions options;
  options.length = 400;
  options.tail = 50;
  options.max_windows = 2;
  return options;
}

TEST(Divergence, IsZeroFromItselfAndGrowsWithWhatIsDropped) {
  const Engine full = engine_with("f32", "", "");
  const DivergenceResult same = value_of(measure_divergence(full, full, text(), settings()));
  EXPECT_EQ(same.tokens, 100);
  EXPECT_EQ(same.mean_kl, 0);
  EXPECT_EQ(same.same_top, 1);
  const DivergenceResult whole =
      value_of(measure_divergence(full, engine_with("f32", "streaming", "100%"), text(), settings()));
  EXPECT_EQ(whole.max_kl, 0);
  EXPECT_EQ(whole.kv_bytes_per_token, same.kv_bytes_per_token);
  double last = 0;
  for (const char* budget : {"50%", "5%"}) {
    const DivergenceResult less =
        value_of(measure_divergence(full, engine_with("f32", "streaming", budget), text(), settings()));
    EXPECT_GT(less.mean_kl, last) << budget;
    EXPECT_GE(less.max_kl, less.mean_kl);
    EXPECT_LT(less.kv_bytes_per_token, same.kv_bytes_per_token);
    last = less.mean_kl;
  }
  const DivergenceResult rounded = value_of(measure_divergence(full, engine_with("bf16", "", ""), text(), settings()));
  EXPECT_GT(rounded.mean_kl, 0);
  EXPECT_LT(rounded.mean_kl, 1e-2);
}

TEST(Divergence, RefusesWhatMakesNoSense) {
  const Engine engine = open();
  DivergenceOptions options = settings();
  options.tail = 400;
  expect_error(measure_divergence(engine, engine, text(), options), ErrorCode::kInvalidArgument, "make no sense");
  options = settings();
  options.length = 1 << 20;
  expect_error(measure_divergence(engine, engine, text(), options), ErrorCode::kInvalidArgument,
               "less than one window");
  std::stop_source source;
  source.request_stop();
  expect_error(measure_divergence(engine, engine, text(), settings(), source.get_token()), ErrorCode::kCancelled,
               "stopped");
}

}  // namespace
}  // namespace godwit
