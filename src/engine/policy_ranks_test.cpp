// KV policies over several ranks, here threads: the entries that one process would keep stay, and the answers are its.
// Sums over ranks round otherwise than sums over segments; where all numbers have 32 bits, by little.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "backend/backend.h"
#include "engine/test_ranks.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_policy(std::string policy, std::string budget, std::string trigger) {
  EngineOptions options = options_for("qwen3");
  options.kv_policy = std::move(policy);
  options.kv_budget = std::move(budget);
  options.kv_trigger = std::move(trigger);
  options.prefill_chunk = 128;
  options.threads = 1;
  options.kv_codec = "f32";
  options.simd = cpu_simd_targets().back();  // in fp32
  return options;
}

Talk talk(const Engine& engine) {
  return engine_test::talk(engine, 30, 400);
}

void expect_near(const Talk& got, const Talk& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < want.logprobs.size(); ++i) EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 2e-3) << what;
}

TEST(PoliciesOverRanks, WhatStaysIsWhatOneProcessKeeps) {
  const auto gates = std::filesystem::path(testing::TempDir()) / fmt::format("gates{}.json", getpid());
  std::ofstream(gates) << R"({"format": "godwit.duo-gates.1", "sinks": 2, "recent": 80, "gates": [[1], [0]]})";
  const Talk whole = talk(open(with_policy("", "", "")));
  for (const auto& [policy, budget, trigger] :
       {std::tuple<std::string, const char*, const char*>{"streaming", "200", "chunk"},
        {"streaming", "30%", "prefill"},
        {"random", "25%", "prefill"},
        {"random:seed=3", "300", "256"},
        {"infinipot", "256", "chunk"},
        {"snapkv", "30%", "prefill"},
        {"snapkv:window=200", "256", "chunk"},
        {"tova", "200", "64"},
        {"cake", "25%", "prefill"},
        {"scissorhands", "300", "chunk"},
        {"kvcrush", "200", "prefill"},
        {"kvmerger", "50%", "prefill"},
        {"chelsea", "40%", "chunk"},
        {"h2o", "200", "chunk"},
        {"d2o", "250", "prefill"},
        {"lazyeviction", "200", "100"},
        {"duo:gates=" + gates.string(), "", ""},
        {"razor:recent=80,share=0.1,gates=" + gates.string(), "", ""}}) {
    const std::string what = fmt::format("{} {} {}", policy, budget, trigger);
    const Talk want = talk(open(with_policy(policy, budget, trigger)));
    EXPECT_NE(want.logprobs, whole.logprobs) << what;
    for (int count : {2, 3})
      expect_all_well(with_ranks(count, [&, policy = policy, budget = budget, trigger = trigger](auto ranks) {
        const Engine engine = open(over(ranks, with_policy(policy, budget, trigger)));
        expect_near(talk(engine), want, what);
        EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
      }));
  }
}

TEST(PoliciesOverRanks, AWholeBudgetGivesTheBitsOfOneProcess) {
  const Talk want = talk(open(with_policy("", "", "")));
  expect_all_well(with_ranks(3, [&](auto ranks) {
    const Talk got = talk(open(over(ranks, with_policy("streaming", "100%", "chunk"))));
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);
  }));
}

TEST(PoliciesOverRanks, MemoryIsFreedOnEveryRank) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(over(ranks, with_policy("random", "10%", "prefill")));
    Session session = engine.start();
    append(session, prompt(2000));
    ASSERT_TRUE(session.prefill().has_value());
    // 200 entries a head in two layers, 10 pages and less than two that are not full; positions stand beside them.
    constexpr uint64_t kPage = 64 * 32 * 8 + 512;
    EXPECT_GE(session.kv_bytes(), 2U * 4 * kPage);
    EXPECT_LE(session.kv_bytes(), 2U * 5 * kPage);
    EXPECT_LE(engine.info().kv_bytes_in_use, 2U * 3 * kPage);  // of rank 0
  }));
}

TEST(PoliciesOverRanks, OthersAreRefusedWithTheReason) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    for (const auto& [policy, why] :
         {std::pair("zipcache", "it demotes entries"), {"h2o", "pages are sealed by the number of entries"}}) {
      EngineOptions sealing = over(ranks, with_policy(policy, "50%", ""));
      sealing.kv_codec = "q4:last=64";
      expect_error(Engine::open(sealing), ErrorCode::kUnsupported,
                   fmt::format("KV policy '{}' does not work over 2 ranks: ", policy));
      expect_error(Engine::open(sealing), ErrorCode::kUnsupported, why);
    }
    EXPECT_EQ(cold(open(over(ranks)), prompt(40), 3).size(), 3U);  // and goes on
  }));
}

}  // namespace
}  // namespace godwit
