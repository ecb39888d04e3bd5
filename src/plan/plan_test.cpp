#include "plan/plan.h"

#include <gtest/gtest.h>

#include "kv/codec.h"

namespace godwit::plan {
namespace {

PlanRequest request_of(int64_t tokens, int cp) {
  PlanRequest request;
  request.model = plan_model(*find_shape("llama-3.1-8b"), 16, 16);
  request.device = *find_device("h100");
  request.link = *find_link("rdma-400");
  request.kv = *make_kv_format("bf16", 128);
  request.new_tokens = tokens;
  request.cp = cp;
  request.mode = dist::RingMode::kPassKv;
  return request;
}

PlanResult planned(const PlanRequest& request) {
  Result<PlanResult> result = make_plan(request);
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

void expect_refused(const PlanRequest& request, const std::string& word) {
  const Result<PlanResult> result = make_plan(request);
  ASSERT_FALSE(result) << word;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
}

TEST(Plan, TheTimeOfOneRankIsTheSumOfItsOperators) {
  PlanRequest request = request_of(8192, 1);
  request.tp = 8;
  const PlanResult result = planned(request);
  for (const Phase* phase : {&result.prefill, &result.decode}) {
    double sum = 0;
    for (const OpTime& op : phase->ops) sum += op.seconds;
    EXPECT_NEAR(sum, phase->seconds, 1e-9 * sum);
    EXPECT_NEAR(phase->waiting_s, 0, 1e-9);
    EXPECT_EQ(phase->sent_bytes, 0);
  }
}

TEST(Plan, BytesOnTheWireAreThoseOfTheFormulas) {
  PlanRequest request = request_of(65536, 4);
  request.cached_tokens = 65536;
  const double layers = 32, kv_token = 8 * 128 * 2 * 2, q_token = 32 * 128 * 2, partial_token = q_token + 32 * 4;
  EXPECT_NEAR(planned(request).prefill.sent_bytes, layers * 3 * 131072 * kv_token, 1);
  request.mode = dist::RingMode::kPassQ;
  EXPECT_NEAR(planned(request).prefill.sent_bytes, layers * 3 * 65536 * (q_token + partial_token), 1);
  request.mode = dist::RingMode::kAllGather;
  EXPECT_NEAR(planned(request).prefill.sent_bytes, layers * 3 * 131072 * kv_token, 1);
  EXPECT_NEAR(planned(request).decode.sent_bytes, layers * 3 * (q_token + partial_token), 1);
}

// As the engine's formulas say (docs/context_parallel.md).
TEST(Plan, KeptSegmentsTakeNewKeysAndReturnPartialsEach) {
  PlanRequest request = request_of(65536, 4);
  const double layers = 32, kv_token = 8 * 128 * 2 * 2, q_token = 32 * 128 * 2, partial_token = q_token + 32 * 4;
  const double moved = 65536 * 0.75 * kv_token;
  request.device.segment_tokens = 1024;
  request.mode = dist::RingMode::kPassKv;
  EXPECT_NEAR(planned(request).prefill.sent_bytes, layers * (3 * 65536 * kv_token + moved), 1);
  request.mode = dist::RingMode::kPassQ;
  EXPECT_NEAR(planned(request).prefill.sent_bytes, layers * (65536 * (3 * q_token + 64 * 0.75 * partial_token) + moved),
              1);
}

TEST(Plan, ASmallerCodecSendsAndHoldsLess) {
  PlanRequest request = request_of(131072, 4);
  request.link = *find_link("ethernet-1");
  const PlanResult wide = planned(request);
  request.kv = *make_kv_format("q8", 128);
  const PlanResult narrow = planned(request);
  const double ratio = 2.0 * 128 * 2 / (2 * (128 + 4));  // a scale and a middle per token and half
  EXPECT_NEAR(wide.prefill.sent_bytes / narrow.prefill.sent_bytes, ratio, 1e-9);
  EXPECT_NEAR(wide.memory.kv / narrow.memory.kv, ratio, 1e-9);
  EXPECT_GT(wide.prefill.waiting_s, 1.5 * narrow.prefill.waiting_s);
}

TEST(Plan, WithoutOverlapMessagesAreWaitedFor) {
  PlanRequest request = request_of(131072, 4);
  const PlanResult hidden = planned(request);
  request.overlapped = false;
  const PlanResult shown = planned(request);
  EXPECT_NEAR(hidden.prefill.waiting_s, 0, 0.01 * hidden.prefill.seconds);
  EXPECT_GT(shown.prefill.waiting_s, 0.02 * shown.prefill.seconds);
  EXPECT_GT(shown.prefill.seconds, hidden.prefill.seconds);
  EXPECT_LT(shown.efficiency, hidden.efficiency);
}

TEST(Plan, UnevenCachesAndSlowRanksCost) {
  PlanRequest request = request_of(16384, 4);
  request.cached_tokens = 131072;
  const PlanResult even = planned(request);
  request.cached_shares = {1, 0, 0, 0};
  const PlanResult uneven = planned(request);
  EXPECT_GT(uneven.prefill.seconds, 1.02 * even.prefill.seconds);
  EXPECT_GT(uneven.memory.kv, 3 * even.memory.kv);
  EXPECT_GT(uneven.decode.seconds, even.decode.seconds);
  request.cached_shares.clear();
  request.slowest = 1.5;
  const PlanResult slow = planned(request);
  EXPECT_GT(slow.prefill.seconds, 1.2 * even.prefill.seconds);
  EXPECT_LT(slow.prefill.seconds, 1.55 * even.prefill.seconds);
  EXPECT_GT(slow.prefill.waiting_s, even.prefill.waiting_s);
}

TEST(Plan, PromptsShorterThanTheRingWork) {
  for (int64_t tokens : {1, 3, 7, 64, 65}) {
    for (auto mode : {dist::RingMode::kPassKv, dist::RingMode::kPassQ, dist::RingMode::kAllGather}) {
      PlanRequest request = request_of(tokens, 8);
      request.mode = mode;
      EXPECT_GT(planned(request).prefill.seconds, 0);
    }
  }
}

TEST(Plan, ChunksReadWeightsAgainAndNeedLessMemory) {
  PlanRequest request = request_of(65536, 1);
  const PlanResult whole = planned(request);
  request.chunk_tokens = 64;
  const PlanResult chunked = planned(request);
  EXPECT_GT(chunked.prefill.seconds, whole.prefill.seconds);
  EXPECT_NEAR(whole.memory.activations / chunked.memory.activations, 1024, 1e-6);
  EXPECT_GT(chunked.longest_context, whole.longest_context);
}

TEST(Plan, SlidingWindowsMakeAttentionShorter) {
  PlanRequest request = request_of(32768, 1);
  const PlanResult full = planned(request);
  for (LayerConfig& layer : request.model.config.layers) layer.window = 4096;
  const PlanResult windowed = planned(request);
  auto attention = [](const Phase& phase) {
    for (const OpTime& op : phase.ops)
      if (op.name == "attention") return op.flops;
    return 0.0;
  };
  const double all = 32768, seen = 4096;
  EXPECT_NEAR(attention(full.prefill) / attention(windowed.prefill), all * (all + 1) / (seen * (2 * all + 1 - seen)),
              1e-9);
  EXPECT_NEAR(attention(full.decode) / attention(windowed.decode), 8, 0.01);
}

TEST(Plan, ABatchSharesTheWeights) {
  PlanRequest request = request_of(8192, 4);
  const double one = planned(request).decode.seconds;
  request.batch = 4;  // one row on each rank
  const PlanResult four = planned(request);
  EXPECT_LT(four.decode.seconds, 1.2 * one);
  EXPECT_EQ(four.memory.kv, 4 * planned(request_of(8192, 4)).memory.kv);
}

TEST(Plan, WhatDoesNotFitIsSaid) {
  PlanRequest request = request_of(1 << 20, 1);
  request.model = plan_model(*find_shape("llama-3.1-70b"), 16, 16);
  const PlanResult result = planned(request);
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.longest_context, 0);  // 140 GB of weights
  request.tp = 8;
  request.cp = 8;
  const PlanResult spread = planned(request);
  EXPECT_TRUE(spread.fits);
  EXPECT_GT(spread.longest_context, 1 << 20);
  request.new_tokens = spread.longest_context;
  request.page_tokens = 1;
  EXPECT_TRUE(planned(request).fits);
  request.new_tokens += 8 * 64;
  EXPECT_FALSE(planned(request).fits);
}

TEST(Plan, TheCheapestThatReachesTheTarget) {
  std::vector<PlanResult> results(4);  // the more ranks, the quicker a prompt and the slower a token
  for (size_t i = 0; i < 4; ++i) {
    results[i].cp = 1 << i;
    results[i].prefill.seconds = 8.0 / results[i].cp;
    results[i].decode.seconds = 1.0 + 0.1 * results[i].cp;
  }
  EXPECT_EQ(cheapest(results, 2.5, {})->cp, 4);
  EXPECT_EQ(cheapest(results, {}, 1.3)->cp, 1);
  EXPECT_EQ(cheapest(results, 4.0, 1.3)->cp, 2);
  EXPECT_EQ(cheapest(results, 2.5, 1.3), nullptr);
  results[2].fits = false;
  EXPECT_EQ(cheapest(results, 2.5, {})->cp, 8);
}

TEST(Plan, NonsenseIsRefusedByName) {
  expect_refused(request_of(0, 1), "0 tokens");
  expect_refused(request_of(2'000'000'000, 1), "2000000000");
  expect_refused(request_of(10, 0), "1 to 512");
  expect_refused(request_of(10, 513), "1 to 512");
  PlanRequest request = request_of(10, 2);
  request.cached_tokens = -1;
  expect_refused(request, "-1 cached");
  request = request_of(10, 2);
  request.tp = 5;
  expect_refused(request, "does not divide");
  request = request_of(10, 2);
  request.cached_shares = {0.5};
  expect_refused(request, "2 numbers");
  request = request_of(10, 2);
  request.slowest = 0.5;
  expect_refused(request, "0.5");
  request = request_of(1'000'000'000, 512);
  request.chunk_tokens = 1;
  expect_refused(request, "raise --chunk");
  request = request_of(10, 1);
  request.tp = 2;
  request.device.all_reduce_bytes_per_s = 0;
  expect_refused(request, "--tp 1");
}

}  // namespace
}  // namespace godwit::plan
