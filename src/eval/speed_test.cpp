#include "eval/speed.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "eval/roofline.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(SpeedTest, IsNamedAsInLlamaBench) {
  EXPECT_EQ((SpeedTest{.prompt = 512}.name()), "pp512");
  EXPECT_EQ((SpeedTest{.generated = 64, .depth = 4096}.name()), "tg64@d4096");
  EXPECT_EQ((SpeedTest{.prompt = 512, .depth = 1024}.name()), "pp512@d1024");
}

TEST(SpeedTest, KnowsTheContextItNeeds) {
  EXPECT_EQ((SpeedTest{.prompt = 512, .depth = 100}.context_tokens()), 612);
  EXPECT_EQ((SpeedTest{.generated = 64, .depth = 100}.context_tokens()), 165);
  EXPECT_EQ((SpeedTest{.generated = 64}.context_tokens()), 66);
}

TEST(Spread, IsTheMeanAndTheSampleDeviation) {
  EXPECT_EQ(spread_of({4}).mean, 4);
  EXPECT_EQ(spread_of({4}).deviation, 0);
  EXPECT_EQ(spread_of({2, 4, 4, 6}).mean, 4);
  EXPECT_NEAR(spread_of({2, 4, 4, 6}).deviation, 1.632993161855452, 1e-12);  // sqrt(8 / 3)
}

TEST(SpeedMeter, MeasuresWithinTheContextItAskedFor) {
  const SpeedTest tests[] = {
      {.prompt = 20}, {.generated = 5}, {.prompt = 20, .depth = 70}, {.generated = 5, .depth = 70}};
  for (const SpeedTest& test : tests) {
    EngineOptions options = options_for("qwen3");
    options.context_tokens = static_cast<int>(test.context_tokens());
    SpeedMeter meter(open(options));
    const SpeedResult result = value_of(meter.measure(test, 3, {}));
    ASSERT_EQ(result.samples.size(), 3U) << test.name();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GT(result.seconds[i], 0);
      EXPECT_DOUBLE_EQ(result.samples[i], test.tokens() / result.seconds[i]);
    }
    EXPECT_EQ(result.mean, spread_of(result.samples).mean);
    EXPECT_EQ(result.to_depth > 0, test.depth > 0) << test.name();
    EXPECT_EQ(value_of(meter.measure(test, 1, {})).to_depth, 0) << "it is there already";
    EXPECT_EQ(result.matmul_seconds, 0) << "without a profile";
  }
}

TEST(SpeedMeter, KeepsOnlyTheDepthBetweenTests) {
  const Engine engine = open();
  SpeedMeter meter(engine);
  Session same_depth = engine.start();
  append(same_depth, prompt(200));
  ASSERT_TRUE(same_depth.prefill());
  const uint64_t wanted = same_depth.kv_bytes();
  for (int depth : {100, 200, 300, 200}) value_of(meter.measure({.generated = 3, .depth = depth}, 2, {}));
  EXPECT_EQ(engine.info().kv_bytes_in_use, 2 * wanted);
}

TEST(SpeedMeter, StopsWhenAsked) {
  SpeedMeter meter(open());
  std::stop_source source;
  auto stop = [&](double share) {
    if (share > 0) source.request_stop();
  };
  for (const SpeedTest& test : {SpeedTest{.prompt = 20}, SpeedTest{.generated = 5}}) {
    source = {};
    expect_error(meter.measure(test, 3, stop, source.get_token()), ErrorCode::kCancelled, "");
  }
}

TEST(Roofline, SharesAreWorkOverTimeOverLimit) {
  EngineOptions options = options_for("qwen3");
  options.profile = true;
  SpeedMeter meter(open(options));
  const SpeedTest test{.prompt = 96};
  SpeedResult result = value_of(meter.measure(test, 2, {}));
  EXPECT_GT(result.matmul_seconds, 0);
  EXPECT_GT(result.attention_seconds, 0);
  EXPECT_LT(result.matmul_seconds + result.attention_seconds, result.seconds[0] + result.seconds[1]);
  EXPECT_EQ(result.quickest.seconds, std::min(result.seconds[0], result.seconds[1]));
  EXPECT_LT(result.quickest.matmul_seconds + result.quickest.attention_seconds, result.quickest.seconds);

  const ModelSource source = value_of(ModelSource::open(model_path("qwen3")));
  const CostModel cost = value_of(CostModel::make(source, KvFormat{.head_dim = source.config().head_dim}));
  const StepCost work = cost.prompt(96, 0, 64);
  result.seconds = {1, 3};  // with numbers that can be worked out
  result.matmul_seconds = 2;
  result.attention_seconds = 1;
  MachineLimits limits;
  limits.fma_flops_per_second = 1e6;
  limits.read_bytes_per_second = 1e5;
  const auto rows = roofline(test, result, cost, 64, limits);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].time_share, 0.5);
  EXPECT_DOUBLE_EQ(rows[0].flops_per_second, work.matmul_flops);  // two repetitions in two seconds
  EXPECT_DOUBLE_EQ(rows[0].fma_share, work.matmul_flops / 1e6);
  EXPECT_DOUBLE_EQ(rows[0].read_share, work.weight_bytes / 1e5);
  EXPECT_EQ(rows[1].time_share, 0.25);
  EXPECT_DOUBLE_EQ(rows[1].bytes_per_second, 2 * work.kv_bytes);
  EXPECT_EQ(rows[2].time_share, 0.25);
  EXPECT_EQ(rows[2].flops_per_second, 0);
  EXPECT_EQ(rows[3].time_share, 1);
  EXPECT_DOUBLE_EQ(rows[3].flops_per_second, work.flops() / 2);
}

}  // namespace
}  // namespace godwit
