// KV codecs over several ranks, here threads: with pages that are sealed some time after they were written, too, the
// bits are those of one process.
#include <future>

#include <gtest/gtest.h>

#include "engine/test_codecs.h"
#include "engine/test_ranks.h"
#include <godwit/service.h>

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_codec(const std::string& codec) {
  EngineOptions options = options_for("qwen3");
  options.kv_codec = codec;
  options.prefill_chunk = 128;
  return options;
}

Talk talk(const Engine& engine) {
  return engine_test::talk(engine, 70, 600);
}

TEST(SealedOverRanks, EveryCodecGivesTheBitsOfOneProcess) {
  for (const std::string& codec : every_codec()) {
    const auto want = talk(open(with_codec(codec)));
    for (const auto& [count, ring] : {std::pair(2, "pass-kv"), std::pair(3, "pass-q")})
      expect_all_well(with_ranks(count, [&, ring = ring](auto ranks) {
        EngineOptions options = over(ranks, with_codec(codec));
        options.rank_options.ring = ring;
        const Engine engine = open(options);
        EXPECT_EQ(talk(engine), want) << codec << " " << ring;
        EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
      }));
  }
}

TEST(SealedOverRanks, TokensThatStayOpenAreCountedByPosition) {
  for (const char* codec : {"q4:last=0", "q4:first=64,last=1216", "kivi:k=4,v=4,first=1088,last=128"}) {
    const auto want = talk(open(with_codec(codec)));
    expect_all_well(
        with_ranks(3, [&](auto ranks) { EXPECT_EQ(talk(open(over(ranks, with_codec(codec)))), want) << codec; }));
  }
}

struct Outcome {
  std::vector<TokenId> tokens;
  int cached = 0;
};

std::future<Outcome> ask(Service& service, std::vector<TokenId> tokens, int count) {
  auto state = std::make_shared<std::pair<Outcome, std::promise<Outcome>>>();
  auto id = service.submit({.prompt = std::move(tokens), .options = greedy(count), .principal = {}},
                           {[state](const Piece& piece) { state->first.tokens.push_back(piece.id); },
                            [state](const ServiceAnswer& answer) {
                              EXPECT_EQ(answer.error, "");
                              state->first.cached = answer.cached_tokens;
                              state->first.tokens.resize(static_cast<size_t>(answer.completion_tokens));
                              state->second.set_value(std::move(state->first));
                            }});
  EXPECT_TRUE(id.has_value());
  return state->second.get_future();
}

TEST(SealedOverRanks, AServiceBatchesThemAndChatsGoOnWithTheirPages) {
  for (const char* codec : {"q4:last=64", "kivi:k=4,v=4,last=0"}) {
    const Engine alone = open(with_codec(codec));
    std::vector<std::vector<TokenId>> prompts, want;
    for (uint32_t i = 0; i < 6; ++i) {
      prompts.push_back(prompt(200 + 230 * i, i + 1));
      want.push_back(cold(alone, prompts.back(), 80));
    }
    expect_all_well(with_ranks(2, [&](auto ranks) {
      EngineOptions options = over(ranks, with_codec(codec));
      options.prefill_chunk = 64;
      const Engine engine = open(options);
      {
        auto service = value_of(Service::start(engine, {}));
        std::vector<std::future<Outcome>> futures;
        for (const auto& tokens : prompts) futures.push_back(ask(*service, tokens, 80));
        for (size_t i = 0; i < futures.size(); ++i) EXPECT_EQ(futures[i].get().tokens, want[i]) << codec << " " << i;
        // The next turn of each has the prompt's whole pages; whoever leaves it earlier has none.
        for (size_t i : {size_t{1}, size_t{5}}) {
          const auto turn = joined(joined(prompts[i], want[i]), prompt(50, 9));
          const Outcome got = ask(*service, turn, 20).get();
          EXPECT_EQ(got.tokens, cold(alone, turn, 20)) << codec << " " << i;
          EXPECT_EQ(got.cached, static_cast<int>(prompts[i].size() / 64 * 64));
        }
        const auto branch = joined(std::span(prompts[5]).first(500), prompt(50, 9));
        const Outcome got = ask(*service, branch, 5).get();
        EXPECT_EQ(got.tokens, cold(alone, branch, 5));
        EXPECT_EQ(got.cached, 0);
      }
      EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
    }));
  }
}

// A prompt that begins like another may come at any moment of the other's, amid a step that seals pages, too.
TEST(SealedOverRanks, PromptsThatBeginAlikeComeAtAnyMoment) {
  for (const char* codec : {"q4:last=64", "kivi:k=4,v=4,last=0"}) {
    const Engine alone = open(with_codec(codec));
    expect_all_well(with_ranks(2, [&](auto ranks) {
      EngineOptions options = over(ranks, with_codec(codec));
      options.prefill_chunk = 64;
      const Engine engine = open(options);
      auto service = value_of(Service::start(engine, {.most_running = 4}));
      for (uint32_t length = 100; length < 400; length += 16) {
        const std::vector<TokenId> first = prompt(length + 70, length);
        const auto second = joined(std::span(first).first(length), prompt(30, length + 1));
        auto one = ask(*service, first, 4), two = ask(*service, second, 4);
        EXPECT_EQ(one.get().tokens, cold(alone, first, 4)) << codec << " " << length;
        EXPECT_EQ(two.get().tokens, cold(alone, second, 4)) << codec << " " << length;
      }
    }));
  }
}

TEST(SealedOverRanks, RequestsGiveWayAndAnswersStayTheSame) {
  const Engine alone = open(with_codec("q4:last=64"));
  std::vector<std::vector<TokenId>> want;
  for (uint32_t i = 0; i < 6; ++i) want.push_back(cold(alone, prompt(60 + 10 * i, i + 1), 150));
  expect_all_well(with_ranks(2, [&](auto ranks) {
    EngineOptions options = over(ranks, with_codec("q4:last=64"));
    options.prefill_chunk = 64;
    options.context_tokens = 300;
    options.kv_budget_bytes = static_cast<uint64_t>(alone.info().kv_bytes_per_token * 1500);  // of each rank
    const Engine engine = open(options);
    auto service = value_of(Service::start(engine, {.most_running = 6}));
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 6; ++i) futures.push_back(ask(*service, prompt(60 + 10 * i, i + 1), 150));
    for (size_t i = 0; i < futures.size(); ++i) EXPECT_EQ(futures[i].get().tokens, want[i]) << i;
    EXPECT_GT(service->stats().gave_way, 0U);
  }));
}

}  // namespace
}  // namespace godwit
