// Sessions over a KV codec that seals pages: what they promise still holds. The built-in model, whose heads are large
// enough for these codecs.
#include <cmath>

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_codec(std::string codec, int chunk = 512) {
  EngineOptions options;
  options.threads = 2;
  options.kv_codec = std::move(codec);
  options.prefill_chunk = chunk;
  options.context_tokens = 1024;
  return options;
}

std::vector<float> logits_of(const Engine& engine, std::span<const TokenId> first, std::span<const TokenId> rest) {
  Session session = engine.start();
  append(session, first);
  std::vector<float> all;
  Status status =
      session.read(rest, [&](std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return all;
}

TEST(SealedKvEngine, ChunksDoNotMatter) {
  const auto first = prompt(300), rest = prompt(20, 5);
  for (const char* codec : {"kivi:last=64", "q4:last=64,first=64"}) {
    const auto want = logits_of(open(with_codec(codec)), first, rest);
    for (int chunk : {50, 64}) EXPECT_EQ(logits_of(open(with_codec(codec, chunk)), first, rest), want) << codec;
  }
}

// Everything open is attention over f16, but for rounding.
TEST(SealedKvEngine, NeutralIsF16) {
  const auto first = prompt(300), rest = prompt(20, 5);
  const auto want = logits_of(open(with_codec("f16")), first, rest);
  for (const char* codec : {"kivi:last=1024", "q4:first=1024"}) {
    const auto got = logits_of(open(with_codec(codec)), first, rest);
    ASSERT_EQ(got.size(), want.size());
    double square = 0, difference = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      square += double{want[i]} * want[i];
      difference += double{got[i] - want[i]} * (got[i] - want[i]);
    }
    EXPECT_LT(std::sqrt(difference / square), 0.01) << codec;
  }
}

TEST(SealedKvEngine, RewindingGivesWhatAColdSessionGives) {
  for (const char* codec : {"kivi:last=0", "q4:last=64"}) {
    const Engine engine = open(with_codec(codec));
    const auto start = prompt(300), more = prompt(50, 3);
    Session session = engine.start();
    append(session, start);
    ASSERT_EQ(value_of(session.generate(greedy(20))).tokens.size(), 20U);
    session.truncate(200);
    append(session, more);
    const auto answer = value_of(session.generate(greedy(10)));
    EXPECT_EQ(answer.tokens, cold(engine, joined(std::span(start).first(200), more), 10)) << codec;
    Session fork = session.fork();
    EXPECT_EQ(value_of(fork.generate(greedy(80))).tokens, value_of(session.generate(greedy(80))).tokens) << codec;
    EXPECT_EQ(fork.kv_bytes(), session.kv_bytes());
  }
}

TEST(SealedKvEngine, MemoryIsWhatThePlanSays) {
  EngineOptions options = with_codec("kivi:last=64", 64);
  // 10 layers of 2 heads: 16 pages of codes (4 and 2 x 64 f16 of scales), 4 open ones.
  const uint64_t sealed = 20 * (2 * 64 * 64 / 4 + 2 * 2 * 64 * 2), open_page = 20 * (2 * 64 * 64 * 2);
  options.kv_budget_bytes = 16 * sealed + 4 * open_page;
  const Engine engine = open(options);
  Session session = engine.start();
  append(session, prompt(1000));
  EXPECT_EQ(value_of(session.generate(greedy(24))).tokens.size(), 24U);
  EXPECT_EQ(session.kv_bytes(), 14 * sealed + 2 * open_page);
  EXPECT_LE(engine.info().kv_bytes_peak, options.kv_budget_bytes);
  options.kv_budget_bytes -= 1;
  expect_error(Engine::open(options), ErrorCode::kExhausted, "1024 tokens need");
}

TEST(SealedKvEngine, PoliciesAreRefused) {
  EngineOptions options = with_codec("kivi");
  options.kv_policy = "snapkv";
  options.kv_budget = "25%";
  expect_error(Engine::open(options), ErrorCode::kInvalidArgument, "use f16, bf16, q8 or q4 without open tokens");
}

}  // namespace
}  // namespace godwit
