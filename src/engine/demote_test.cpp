// Sessions whose KV policy demotes, and KV codecs whose layers differ: what they promise still holds. The built-in
// model, whose heads are large enough for these codecs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "kv/codec_tables_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with(std::string codec, std::string policy = "", std::string budget = "", std::string trigger = "") {
  EngineOptions options;
  options.threads = 2;
  options.kv_codec = std::move(codec);
  options.kv_policy = std::move(policy);
  options.kv_budget = std::move(budget);
  options.kv_trigger = std::move(trigger);
  options.prefill_chunk = 128;
  options.context_tokens = 1024;
  return options;
}

// A head takes 64 tokens in so many bytes: f16; kivi's 2 bits, with scales and middles; positions.
constexpr uint64_t kHeads = 20, kOpen = 2 * 64 * 64 * 2, kTwo = 2 * 64 * 64 / 4 + 512;
constexpr uint64_t kAux = 512;

TEST(DemotingEngine, AWholeBudgetIsTheOpenCache) {
  const auto first = prompt(300), rest = prompt(20, 5);
  const auto want = logits_of(open(with("kivi:last=1024")), first, rest);
  EXPECT_EQ(logits_of(open(with("kivi", "mikv", "100%")), first, rest), want);
  EXPECT_EQ(logits_of(open(with("kivi", "zipcache", "100%")), first, rest), want);
}

// Fewer kept are farther away, and dropping them is farther still.
TEST(DemotingEngine, DemotedIsBetterThanDropped) {
  const auto first = prompt(700), rest = prompt(20, 5);
  const auto want = logits_of(open(with("kivi:last=1024")), first, rest);
  const auto off = [&](const char* codec, const char* policy, const char* budget) {
    return distance(logits_of(open(with(codec, policy, budget, "prefill")), first, rest), want);
  };
  const double half = off("kivi:k=4,v=4,last=0", "mikv", "50%"), tenth = off("kivi:k=4,v=4,last=0", "mikv", "10%");
  EXPECT_GT(half, 0);
  EXPECT_LT(half, tenth);
  EXPECT_LT(tenth, off("kivi:k=4,v=4,last=1024", "h2o", "10%") / 2);
}

TEST(DemotingEngine, BytesAreWhatIsOpenAndWhatIsNot) {
  const Engine engine = open(with("kivi:last=64", "mikv", "25%", "prefill"));
  Session session = engine.start();
  append(session, prompt(1000));
  ASSERT_TRUE(session.prefill().has_value());
  // 16 pages a head, of which 250 tokens, and the rest of a page, are open.
  EXPECT_GT(session.kv_bytes(), kHeads * (5 * kOpen + 11 * kTwo));
  EXPECT_LE(session.kv_bytes(), kHeads * (5 * kOpen + 11 * kTwo + 16 * kAux));
  EXPECT_EQ(engine.info().kv_bytes_in_use, session.kv_bytes());
}

TEST(DemotingEngine, MemoryIsWhatThePlanSays) {
  EngineOptions options = with("kivi:last=64", "mikv:base=snapkv", "128", "chunk");
  options.kv_budget_bytes = kHeads * (7 * kOpen + 10 * kTwo + 17 * kAux);  // 128 entries, a chunk, two pages to spare
  const Engine engine = open(options);
  Session session = engine.start();
  append(session, prompt(1000));
  EXPECT_EQ(value_of(session.generate(greedy(24))).tokens.size(), 24U);
  EXPECT_LE(engine.info().kv_bytes_peak, options.kv_budget_bytes);
  options.kv_budget_bytes /= 2;
  expect_error(Engine::open(options), ErrorCode::kExhausted, "1024 tokens need");
}

TEST(DemotingEngine, RewindingAndForkingGiveWhatAColdSessionGives) {
  for (const char* policy : {"mikv", "mikv:base=infinipot", "zipcache"}) {
    SCOPED_TRACE(policy);
    expect_cold_after_rewinding(open(with("kivi:last=0", policy, "25%", "chunk")), 140);
  }
}

// Coordinates of demoted keys are found without RoPE, at positions that leave gaps.
TEST(DemotingEngine, ToCoordinatesOfWeights) {
  const std::string path = testing::TempDir() + "demote_xquant.gguf";
  ASSERT_TRUE(write_xquant_file({.heads = kHeads}, path));
  const auto first = prompt(700), rest = prompt(20, 5);
  const auto want = logits_of(open(with("f16")), first, rest);
  const auto off = [&](const std::string& codec, const char* policy) {
    const auto options = with(fmt::format("xquant:last=0,file={}{}", path, codec), policy, "20%", "chunk");
    return distance(logits_of(open(options), first, rest), want);
  };
  for (const char* policy : {"mikv", "mikv:base=infinipot", "zipcache"})
    EXPECT_LT(off(",k=16,v=16,rank=1", policy), 0.02) << policy;
  EXPECT_LT(off(",k=8,v=8,rank=1", "mikv"), off("", "mikv")) << "more bits";
  EXPECT_LT(off(",rest=4", "mikv"), off("", "h2o") / 2) << "dropped";
  expect_cold_after_rewinding(open(with(fmt::format("xquant:last=0,file={}", path), "mikv", "25%", "chunk")), 70);
}

TEST(DemotingEngine, WhatItNeedsIsSaid) {
  expect_error(Engine::open(with("f16", "mikv", "25%")), ErrorCode::kInvalidArgument, "give kivi");
  EngineOptions options = with("kivi", "mikv", "25%");
  options.prefill = "trishape";
  expect_error(Engine::open(options), ErrorCode::kInvalidArgument, "give dense");
  options.prefill = "dense";
  options.decode = "resa:repair=0";
  EXPECT_EQ(cold(open(options), prompt(300), 5).size(), 5U);
}

// Ten layers whose bits are the same are one codec.
std::string tuned(std::string_view bits, const std::string& more = ",first=0,last=64") {
  std::string text = "kvtuner:bits=";
  for (int i = 0; i < 10; ++i) text += fmt::format("{}{}", i == 0 ? "" : "-", bits);
  return text + more;
}
const char* const kMixed = "kvtuner:bits=88-84-44-42-22-22-42-44-84-88,first=0,last=64";

TEST(LayerBitsEngine, EqualLayersAreTheCodec) {
  const auto first = prompt(300), rest = prompt(20, 5);
  for (const auto& [bits, codec] : {std::pair{"22", "kivi:last=64"}, std::pair{"44", "kivi:k=4,v=4,last=64"}})
    EXPECT_EQ(logits_of(open(with(tuned(bits))), first, rest), logits_of(open(with(codec)), first, rest)) << bits;
}

TEST(LayerBitsEngine, LayersDiffer) {
  const auto first = prompt(300), rest = prompt(20, 5);
  const auto want = logits_of(open(with("kivi:last=1024")), first, rest);
  const auto mixed = logits_of(open(with(kMixed)), first, rest);
  const double two = distance(logits_of(open(with(tuned("22"))), first, rest), want);
  EXPECT_LT(distance(logits_of(open(with(tuned("88"))), first, rest), want), distance(mixed, want));
  EXPECT_LT(distance(mixed, want), two);
  EngineOptions options = with(kMixed);
  for (int chunk : {50, 64}) {
    options.prefill_chunk = chunk;
    EXPECT_EQ(logits_of(open(options), first, rest), mixed) << chunk;
  }
}

TEST(LayerBitsEngine, BytesAreThoseOfTheLayers) {
  EngineOptions options = with(kMixed);
  options.prefill_chunk = 64;
  // K and V of one head in a page, by their bits, scales and middles included.
  const uint64_t half[9] = {0, 0, 1024 + 256, 0, 2048 + 256, 0, 0, 0, 4096 + 256};
  uint64_t sealed = 0;
  for (const auto& [k, v] : {std::pair{8, 8}, std::pair{8, 4}, std::pair{4, 4}, std::pair{4, 2}, std::pair{2, 2}})
    sealed += 2 * 2 * (half[k] + half[v]);
  options.kv_budget_bytes = 16 * sealed + 4 * kHeads * kOpen;
  const Engine engine = open(options);
  Session session = engine.start();
  append(session, prompt(1000));
  EXPECT_EQ(value_of(session.generate(greedy(24))).tokens.size(), 24U);
  EXPECT_EQ(session.kv_bytes(), 14 * sealed + 2 * kHeads * kOpen);
  EXPECT_EQ(engine.info().kv_bytes_per_token, static_cast<double>(sealed) / 64);
  EXPECT_LE(engine.info().kv_bytes_peak, options.kv_budget_bytes);
  options.kv_budget_bytes -= 1;
  expect_error(Engine::open(options), ErrorCode::kExhausted, "1024 tokens need");
}

TEST(LayerBitsEngine, PoliciesForksAndSparsePlansWork) {
  const auto first = prompt(500);
  for (const char* policy : {"snapkv", "infinipot", "chelsea", "mikv", "zipcache"}) {
    const Engine engine = open(with(kMixed, policy, "30%", "chunk"));
    Session session = engine.start();
    append(session, first);
    ASSERT_TRUE(session.prefill().has_value());
    Session fork = session.fork();
    const auto answer = value_of(session.generate(greedy(70))).tokens;
    EXPECT_EQ(value_of(fork.generate(greedy(70))).tokens, answer) << policy;
    EXPECT_EQ(cold(engine, first, 70), answer) << policy;
  }
  EngineOptions options = with(kMixed);
  options.decode = "resa:share=1,repair=0";
  EXPECT_EQ(cold(open(options), first, 70), cold(open(with(kMixed)), first, 70));
}

TEST(LayerBitsEngine, WhatItNeedsIsSaid) {
  const auto refused = [](const std::string& codec, std::string_view mention) {
    auto engine = Engine::open(with(codec));
    ASSERT_FALSE(engine.has_value()) << mention;
    EXPECT_NE(engine.error().message.find(mention), std::string::npos) << engine.error().message;
  };
  refused("kvtuner", "give kvtuner:file=FILE");
  refused("kvtuner:bits=88-44", "bits for 2 layers, but the model has 10");
  refused(tuned("83"), "layer 0 has 3 bits");
  refused("kvtuner:bits=8844", "two digits for each");
  refused("kvtuner:file=/nowhere.json", "/nowhere.json: no such file");
  expect_error(Engine::open(with(kMixed, "snapkv", "1MiB")), ErrorCode::kInvalidArgument, "pages of different size");
}

}  // namespace
}  // namespace godwit
