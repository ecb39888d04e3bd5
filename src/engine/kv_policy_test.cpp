// Sessions whose KV policy drops entries: what they promise still holds.
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/open.h"
#include "engine/test_engine.h"
#include "kv/policy.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_policy(std::string policy, std::string budget, std::string trigger, int chunk = 64) {
  EngineOptions options = options_for("qwen3");
  options.kv_policy = std::move(policy);
  options.kv_budget = std::move(budget);
  options.kv_trigger = std::move(trigger);
  options.prefill_chunk = chunk;
  return options;
}

// Every policy; where it has gates, they keep everything.
std::vector<std::string> neutral_specs() {
  const auto gates = std::filesystem::path(testing::TempDir()) / "duo_gates_of_kv_policy_test.json";
  const std::string own = fmt::format("{}.{}", gates.string(), getpid());  // others may write it at the same time
  std::ofstream(own) << R"({"format": "godwit.duo-gates.1", "sinks": 2, "recent": 8, "gates": [[1], [1]]})";
  std::filesystem::rename(own, gates);
  std::vector<std::string> specs;
  for (const KvPolicyRow* row : all_kv_policies()) {
    if (row->demotes) continue;  // needs a codec that this model's heads are too small for
    specs.emplace_back(row->info.name);
    if (!row->needs_budget) specs.back() += ":gates=" + gates.string();
  }
  return specs;
}

TEST(KvPolicyEngine, AWholeBudgetGivesTheSameBits) {
  const auto first = prompt(300), rest = prompt(40, 5);
  const auto want = logits_of(open(), first, rest);
  ASSERT_EQ(want.size(), 40U * 320);
  for (const std::string& spec : neutral_specs())
    EXPECT_EQ(logits_of(open(with_policy(spec, "100%", "chunk", 100)), first, rest), want) << spec;
}

TEST(KvPolicyEngine, ASmallBudgetFreesMemoryAndChangesTheResult) {
  const auto first = prompt(1000), rest = prompt(20, 5);
  const auto want = logits_of(open(), first, rest);
  for (const char* spec : {"streaming", "snapkv", "h2o", "infinipot"}) {
    const Engine engine = open(with_policy(spec, "10%", "prefill"));
    EXPECT_NE(logits_of(engine, first, rest), want) << spec;
    Session session = engine.start();
    append(session, first);
    ASSERT_TRUE(session.prefill().has_value());
    // Two layers of 100 entries; positions stand beside the pages where they have gaps.
    EXPECT_GE(session.kv_bytes(), 2U * 2 * 64 * 32 * 4) << spec;
    EXPECT_LE(session.kv_bytes(), 2U * 2 * (64 * 32 * 4 + 512)) << spec;
    EXPECT_EQ(engine.info().kv_bytes_in_use, session.kv_bytes()) << spec;
  }
}

TEST(KvPolicyEngine, ACappedCacheReadsWhatItsMemoryCouldNotHold) {
  constexpr uint64_t kPage = 64 * 32 * 4 + 512;
  EngineOptions options = with_policy("streaming", "128", "chunk");
  options.kv_budget_bytes = 2 * 4 * kPage;  // 256 entries a head: the budget, one chunk, and a page to spare
  options.context_tokens = 1500;
  const Engine engine = open(options);
  Session session = engine.start();
  append(session, prompt(1400));
  const Generation answer = value_of(session.generate(greedy(60)));
  EXPECT_EQ(answer.tokens.size(), 60U);
  EXPECT_LE(engine.info().kv_bytes_peak, 2 * 3 * kPage) << "128 entries and one chunk of 64";
  options.kv_trigger = "prefill";
  expect_error(Engine::open(options), ErrorCode::kExhausted, "1500 tokens need");
  options.kv_policy = options.kv_budget = options.kv_trigger = "";
  expect_error(Engine::open(options), ErrorCode::kExhausted, "1500 tokens need");
}

TEST(KvPolicyEngine, WhatWasDroppedIsComputedAnewBeforeTheDrop) {
  for (const char* spec : {"snapkv", "h2o", "streaming"}) {
    const Engine engine = open(with_policy(spec, "25%", "prefill"));
    const auto start = prompt(300), more = prompt(50, 3);
    Session session = engine.start();
    append(session, start);
    ASSERT_EQ(value_of(session.generate(greedy(10))).tokens.size(), 10U);
    session.truncate(200);
    EXPECT_EQ(session.tokens().size(), 200U);
    append(session, more);
    const Generation answer = value_of(session.generate(greedy(10)));
    EXPECT_EQ(answer.prompt_tokens, 250) << spec;
    EXPECT_EQ(answer.tokens, cold(engine, joined(std::span(start).first(200), more), 10)) << spec;
  }
}

TEST(KvPolicyEngine, ForgettingWhatCameAfterTheDropIsCheap) {
  const Engine engine = open(with_policy("snapkv", "25%", "prefill"));
  Session session = engine.start();
  append(session, prompt(300));
  ASSERT_TRUE(session.generate(greedy(30)).has_value());
  const uint64_t bytes = session.kv_bytes();
  session.truncate(310);
  EXPECT_LE(session.kv_bytes(), bytes);
  EXPECT_EQ(value_of(session.generate(greedy(5))).prompt_tokens, 1);
}

TEST(KvPolicyEngine, ScoringDoesNotDisturbTheCache) {
  for (const char* spec : {"snapkv", "h2o"}) {
    const Engine engine = open(with_policy(spec, "25%", "prefill"));
    const auto start = prompt(300), value = prompt(10, 9);
    Session session = engine.start(), other = engine.start();
    append(session, start);
    append(other, start);
    ASSERT_TRUE(other.prefill().has_value());
    const auto scores = value_of(session.score(value)), again = value_of(other.score(value));
    ASSERT_EQ(scores.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(scores[i].logprob, again[i].logprob);
    EXPECT_LT(session.kv_bytes(), 3U * 2 * (64 * 32 * 4 + 512));
  }
}

TEST(KvPolicyEngine, APromptInPiecesIsCompressedAtItsEnd) {
  const Engine engine = open(with_policy("snapkv", "25%", "prefill"));
  const auto tokens = prompt(300);
  Session whole = engine.start(), pieces = engine.start();
  append(whole, tokens);
  append(pieces, std::span(tokens).first(128));
  ASSERT_TRUE(pieces.prefill({}, {}, false).has_value());
  EXPECT_EQ(pieces.kv_bytes(), 2U * 2 * 64 * 32 * 4) << "nothing dropped yet";
  append(pieces, std::span(tokens).subspan(128));
  EXPECT_EQ(value_of(pieces.generate(greedy(10))).tokens, value_of(whole.generate(greedy(10))).tokens);
  EXPECT_EQ(pieces.kv_bytes(), whole.kv_bytes());
}

TEST(KvPolicyEngine, ForksContinueAsOneWouldAlone) {
  for (const char* spec : {"snapkv", "h2o", "infinipot", "random"}) {
    const Engine engine = open(with_policy(spec, "96", "chunk"));
    const auto start = prompt(300), left = prompt(80, 2), right = prompt(80, 3);
    Session session = engine.start();
    append(session, start);
    ASSERT_TRUE(session.prefill().has_value());
    Session fork = session.fork();
    append(session, left);
    append(fork, right);
    const auto a = value_of(session.generate(greedy(20))).tokens, b = value_of(fork.generate(greedy(20))).tokens;
    Session alone = engine.start();
    append(alone, start);
    ASSERT_TRUE(alone.prefill().has_value());
    append(alone, right);
    EXPECT_EQ(value_of(alone.generate(greedy(20))).tokens, b) << spec;
    EXPECT_NE(a, b) << spec;
  }
}

TEST(KvPolicyEngine, EverythingGoesThroughTheBackend) {
  for (const char* spec : {"snapkv", "h2o", "infinipot"}) {
    const EngineOptions options = with_policy(spec, "96", "chunk");
    auto walk = [](const Engine& engine) {
      Session session = engine.start();
      append(session, prompt(300));
      EXPECT_TRUE(session.prefill().has_value());
      Session fork = session.fork();
      append(fork, prompt(70, 4));
      return joined(value_of(fork.generate(greedy(30))).tokens, value_of(session.generate(greedy(10))).tokens);
    };
    auto backend = value_of(make_guarded_backend({.threads = 2, .simd = {}}));
    EXPECT_EQ(walk(value_of(open_engine(options, std::move(backend)))), walk(open(options))) << spec;
  }
}

TEST(KvPolicyEngine, WrongSettingsAreRefusedAtOpen) {
  auto refused = [](const EngineOptions& options, std::string_view mention) {
    expect_error(Engine::open(options), ErrorCode::kInvalidArgument, mention);
  };
  refused(with_policy("", "25%", ""), "a KV budget without a KV policy");
  refused(with_policy("", "", "chunk"), "a KV trigger without a KV policy");
  refused(with_policy("lru", "25%", ""), "no KV policy is named 'lru'");
  refused(with_policy("snapkv", "", ""), "needs a budget");
  refused(with_policy("snapkv", "250%", ""), "no KV budget");
  refused(with_policy("snapkv:windows=3", "25%", ""), "no parameter 'windows'");
}

}  // namespace
}  // namespace godwit
