// Sessions with sparse planners: neutral settings give dense bits, chunks do not matter, and repair does what it says.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_planners(std::string prefill, std::string decode, int chunk = 64) {
  EngineOptions options = options_for("qwen3");
  options.prefill = std::move(prefill);
  options.decode = std::move(decode);
  options.prefill_chunk = chunk;
  options.simd = cpu_fp32_target();  // one arithmetic for prompts and generated tokens
  options.kv_codec = "f32";
  return options;
}

std::vector<float> logits_after(Session& session, std::span<const TokenId> rest) {
  std::vector<float> all;
  Status status =
      session.read(rest, [&](std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return all;
}

std::vector<float> logits_of(const Engine& engine, std::span<const TokenId> first, std::span<const TokenId> rest) {
  Session session = engine.start();
  append(session, first);
  return logits_after(session, rest);
}

TEST(PlannerEngine, NeutralSettingsGiveTheBitsOfDense) {
  const auto first = prompt(700), rest = prompt(20, 5);
  EXPECT_EQ(logits_of(open(with_planners("trishape:window=100000", "dense")), first, rest),
            logits_of(open(with_planners("dense", "dense")), first, rest));
  const Engine resa = open(with_planners("dense", "resa:share=1,repair=0"));
  EXPECT_EQ(cold(resa, first, 12), cold(open(with_planners("dense", "dense")), first, 12));
}

TEST(PlannerEngine, TriShapeDoesNotDependOnChunksAndDiffersFromDense) {
  const auto first = prompt(1500), rest = prompt(4, 5);
  const std::string spec = "trishape:sinks=16,window=64,tail=16";
  const auto whole = logits_of(open(with_planners(spec, "dense", 2048)), first, rest);
  EXPECT_EQ(logits_of(open(with_planners(spec, "dense", 100)), first, rest), whole);
  EXPECT_NE(logits_of(open(with_planners("dense", "dense", 2048)), first, rest), whole);
}

// After a repair the cache is what dense attention would have made of the same tokens.
TEST(PlannerEngine, RepairedTokensAreExact) {
  const auto first = prompt(600), rest = prompt(6, 5);
  const Engine dense = open(with_planners("dense", "dense"));
  for (const char* spec : {"resa:share=0.05,least=1,repair=8", "resa:share=0.05,least=1,repair=1"}) {
    const Engine sparse = open(with_planners("dense", spec));
    Session session = sparse.start();
    append(session, first);
    // The last sampled token is computed with what follows it; 16 were computed and repaired.
    const auto tokens = value_of(session.generate(greedy(17))).tokens;
    const auto text = joined(first, tokens);
    Session fork = session.fork();
    const auto want = logits_of(dense, text, rest);
    EXPECT_EQ(logits_after(session, rest), want) << spec;
    EXPECT_EQ(logits_after(fork, rest), want) << spec;
  }
  Session session = open(with_planners("dense", "resa:share=0.05,least=1,repair=0")).start();
  append(session, first);
  const auto text = joined(first, value_of(session.generate(greedy(17))).tokens);
  EXPECT_NE(logits_after(session, rest), logits_of(dense, text, rest));
}

// Tokens that wait for their repair are repaired before a prompt goes on, and may be truncated.
TEST(PlannerEngine, APromptFindsARepairedCache) {
  const auto first = prompt(600), rest = prompt(6, 5);
  const Engine dense = open(with_planners("dense", "dense"));
  const Engine sparse = open(with_planners("dense", "resa:share=0.05,least=1,repair=64"));
  Session session = sparse.start();
  append(session, first);
  const auto text = joined(first, value_of(session.generate(greedy(10))).tokens);
  EXPECT_EQ(logits_after(session, rest), logits_of(dense, text, rest));
  session.truncate(605);
  EXPECT_EQ(logits_after(session, rest), logits_of(dense, std::span(text).first(605), rest));
}

TEST(PlannerEngine, WhatRepairCannotBeCombinedWithIsRefused) {
  EngineOptions options = with_planners("dense", "resa:repair=65", 64);
  expect_error(Engine::open(options), ErrorCode::kInvalidArgument, "larger prefill chunk");
  options = with_planners("dense", "resa");
  options.kv_policy = "streaming";
  options.kv_budget = "50%";
  expect_error(Engine::open(options), ErrorCode::kInvalidArgument, "repair=0");
  options.decode = "resa:repair=0";
  EXPECT_TRUE(Engine::open(options).has_value());
}

}  // namespace
}  // namespace godwit
