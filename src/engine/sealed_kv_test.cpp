// Sessions over a KV codec that seals pages: what they promise still holds. The built-in model, whose heads are large
// enough for these codecs.
#include <future>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "kv/codec_tables_testing.h"
#include <godwit/service.h>

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

// For the built-in model's 20 heads. Bases of a model would do better, but every one must keep the promises.
std::string xquant(const std::string& more) {
  const std::string path = testing::TempDir() + "sealed_kv_xquant.gguf";
  EXPECT_TRUE(write_xquant_file({.heads = 20}, path));
  return "xquant:file=" + path + "," + more;
}

TEST(SealedKvEngine, ChunksDoNotMatter) {
  const auto first = prompt(300), rest = prompt(20, 5);
  for (const std::string& codec : {std::string("kivi:last=64"), std::string("q4:last=64,first=64"),
                                   std::string("ksort:last=0"), std::string("gear:last=64"), xquant("last=0")}) {
    const auto want = logits_of(open(with_codec(codec)), first, rest);
    for (int chunk : {50, 64}) EXPECT_EQ(logits_of(open(with_codec(codec, chunk)), first, rest), want) << codec;
  }
}

// Everything open is attention over f16, but for rounding, which activations of 8 bits make larger: a number that
// falls to the other side of a step moves by 1/127 of its block's largest.
TEST(SealedKvEngine, NeutralIsF16) {
  const auto first = prompt(300), rest = prompt(20, 5);
  const auto want = logits_of(open(with_codec("f16")), first, rest);
  for (const std::string& codec :
       {std::string("kivi:last=1024"), std::string("q4:first=1024"), std::string("ksort:last=1024"),
        std::string("gear:first=1024"), std::string("think:last=1024"), std::string("think:drop=0,last=0"),
        xquant("k=16,v=16,rank=1,last=0")}) {
    EXPECT_LT(distance(logits_of(open(with_codec(codec)), first, rest), want), 0.02) << codec;
  }
}

TEST(SealedKvEngine, RewindingGivesWhatAColdSessionGives) {
  for (const std::string& codec :
       {std::string("kivi:last=0"), std::string("q4:last=64"), std::string("ksort:last=0"), xquant("last=0")}) {
    SCOPED_TRACE(codec);
    expect_cold_after_rewinding(open(with_codec(codec)), 70);
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

TEST(SealedKvEngine, AFormsBytesAreWhatItSays) {
  const Engine engine = open(with_codec(xquant("first=64,last=64"), 64));
  Session session = engine.start();
  append(session, prompt(1000));
  EXPECT_EQ(value_of(session.generate(greedy(24))).tokens.size(), 24U);
  EXPECT_EQ(session.kv_bytes(), 20 * (13 * (12 + 68 + 2 * (64 * 4 + 32 * 32 + 32 * 16)) + 3 * (2 * 64 * 64 * 2)));
}

TEST(SealedKvEngine, SparsePlannersKeepTheirPromises) {
  const auto first = prompt(600), rest = prompt(4, 5);
  auto with = [](const char* prefill, const char* decode, int chunk) {
    EngineOptions options = with_codec("kivi:k=4,v=4,last=64", chunk);
    options.prefill = prefill;
    options.decode = decode;
    return options;
  };
  const auto dense = logits_of(open(with("dense", "dense", 512)), first, rest);
  EXPECT_EQ(logits_of(open(with("trishape:window=100000", "dense", 512)), first, rest), dense);
  const char* sparse = "trishape:sinks=64,window=128,tail=16";
  const auto want = logits_of(open(with(sparse, "dense", 1024)), first, rest);
  EXPECT_NE(want, dense);
  EXPECT_EQ(logits_of(open(with(sparse, "dense", 100)), first, rest), want);
  EXPECT_EQ(cold(open(with("dense", "resa:share=1,repair=0", 512)), first, 70),
            cold(open(with("dense", "dense", 512)), first, 70));
  expect_error(Engine::open(with("dense", "resa", 512)), ErrorCode::kInvalidArgument, "give repair=0");
}

EngineOptions with_policy(std::string codec, const char* policy, const char* budget, const char* trigger = "") {
  EngineOptions options = with_codec(std::move(codec), 128);
  options.kv_policy = policy;
  options.kv_budget = budget;
  options.kv_trigger = trigger;
  return options;
}

TEST(SealedKvEngine, PoliciesDropFromSealedPages) {
  const auto first = prompt(700), rest = prompt(20, 5);
  for (const std::string& codec :
       {std::string("kivi:k=4,v=4,last=64"), std::string("q4:last=64,first=64"), std::string("ksort:last=64"),
        std::string("gear:last=64"), xquant("rest=4,last=64")}) {
    const auto want = logits_of(open(with_codec(codec, 128)), first, rest);
    EXPECT_EQ(logits_of(open(with_policy(codec, "streaming", "100%")), first, rest), want) << codec;
    const Engine whole = open(with_codec(codec, 128));
    Session everything = whole.start();
    append(everything, first);
    ASSERT_TRUE(everything.prefill().has_value());
    for (const char* policy : {"snapkv", "h2o", "chelsea"}) {
      const Engine engine = open(with_policy(codec, policy, "25%", "prefill"));
      Session session = engine.start();
      append(session, first);
      ASSERT_TRUE(session.prefill().has_value());
      // Of 11 pages a quarter, of which those at the ends are in f16.
      EXPECT_LT(session.kv_bytes(), everything.kv_bytes() * 2 / 3) << codec << " " << policy;
      Session fork = session.fork();
      const auto answer = value_of(session.generate(greedy(70))).tokens;
      EXPECT_EQ(answer.size(), 70U);
      EXPECT_EQ(value_of(fork.generate(greedy(70))).tokens, answer) << codec << " " << policy;
      EXPECT_EQ(cold(engine, first, 70), answer) << codec << " " << policy;
    }
  }
}

TEST(SealedKvEngine, ACapHoldsInMemory) {
  EngineOptions options = with_policy("kivi:last=64", "infinipot", "256", "chunk");
  options.context_tokens = 4096;
  options.kv_budget_bytes = uint64_t{20} * (8 * 1536 + 6 * 16384 + 12 * 512);
  const Engine engine = open(options);
  Session session = engine.start();
  append(session, prompt(3000));
  EXPECT_EQ(value_of(session.generate(greedy(300))).tokens.size(), 300U);
  EXPECT_LE(engine.info().kv_bytes_peak, options.kv_budget_bytes);
}

std::vector<TokenId> ask(Service& service, const std::vector<TokenId>& tokens, int& cached, int most = 20) {
  auto done = std::make_shared<std::promise<ServiceAnswer>>();
  auto answer = std::make_shared<std::vector<TokenId>>();
  auto id = service.submit({.prompt = tokens, .options = greedy(most), .principal = {}},
                           {[answer](const Piece& piece) { answer->push_back(piece.id); },
                            [done](const ServiceAnswer& end) { done->set_value(end); }});
  EXPECT_TRUE(id.has_value());
  const ServiceAnswer end = done->get_future().get();
  EXPECT_EQ(end.error, "");
  cached = end.cached_tokens;
  answer->resize(static_cast<size_t>(end.completion_tokens));
  return *answer;
}

// What was remembered is found where a sequence can go on: at the ends of steps.
TEST(SealedKvEngine, AServiceSharesPrefixesThatAreSealedAlike) {
  for (const std::string& codec :
       {std::string("kivi:k=4,v=4,last=128"), std::string("q4:first=64,last=0"), std::string("kivi:last=0"),
        std::string("ksort:last=64"), std::string("think:last=0"), xquant("last=64")}) {
    SCOPED_TRACE(codec);
    const Engine engine = open(with_codec(codec, 256)), alone = open(with_codec(codec, 256));
    auto service = value_of(Service::start(engine, {}));
    int cached = 0;
    for (size_t length : {size_t{500}, size_t{512}}) {
      const auto tokens = prompt(length, static_cast<uint32_t>(length));
      const auto want = cold(alone, tokens, 20);
      EXPECT_EQ(ask(*service, tokens, cached), want);
      EXPECT_EQ(cached, 0);
      EXPECT_EQ(ask(*service, tokens, cached), want);
      EXPECT_EQ(cached, static_cast<int>((length - 1) / 64 * 64));
      // The same beginning, another end; and one that leaves it amid a step.
      const auto longer = joined(tokens, prompt(90, 7));
      EXPECT_EQ(ask(*service, longer, cached), cold(alone, longer, 20));
      EXPECT_EQ(cached, static_cast<int>(length / 64 * 64));
      const auto branch = joined(std::span(tokens).first(400), prompt(90, 7));
      EXPECT_EQ(ask(*service, branch, cached), cold(alone, branch, 20));
      EXPECT_GE(cached, 64);
      EXPECT_LE(cached, 384);
    }
    service.reset();
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
  }
}

TEST(SealedKvEngine, RequestsGiveWayAndAnswersStayTheSame) {
  EngineOptions options = with_codec("kivi:k=4,v=4,last=64", 64);
  const Engine alone = open(options);
  options.context_tokens = 640;
  options.kv_budget_bytes = uint64_t{20} * (12 * 4608 + 12 * 16384);
  const Engine engine = open(options);
  auto service = value_of(Service::start(engine, {.most_running = 6}));
  // On a busy machine some may be answered before the others come.
  for (int round = 0; round < 20 && service->stats().gave_way == 0; ++round) {
    std::vector<std::future<std::vector<TokenId>>> answers;
    for (uint32_t i = 0; i < 6; ++i)
      answers.push_back(std::async(std::launch::async, [&service, i] {
        int cached = 0;
        return ask(*service, prompt(100 + 30 * i, i + 1), cached, 150);
      }));
    for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(answers[i].get(), cold(alone, prompt(100 + 30 * i, i + 1), 150)) << i;
  }
  EXPECT_GT(service->stats().gave_way, 0U);
}

}  // namespace
}  // namespace godwit
