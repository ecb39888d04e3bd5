// How many ranks, here threads, take part in a prompt and in its answer: as many as were asked for or are predicted to
// be quickest, and whichever they are, the bits are those of one process.
#include <future>

#include <gtest/gtest.h>

#include "engine/ranks_probe.h"
#include "engine/test_ranks.h"
#include <godwit/service.h>

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_degrees(std::shared_ptr<Ranks> ranks, int prefill, int decode, const char* codec = "f16") {
  EngineOptions options = over(std::move(ranks));
  options.rank_options.prefill_ranks = prefill;
  options.rank_options.decode_ranks = decode;
  options.kv_codec = codec;
  return options;
}

Talk talk(const Engine& engine) {
  return engine_test::talk(engine, 5, 400);
}

TEST(RankDegrees, AnyTwoGiveTheBitsOfOneProcess) {
  for (const char* codec : {"f16", "q4:last=64", "kvtuner:bits=84-44"}) {
    EngineOptions alone = options_for("qwen3");
    alone.kv_codec = codec;
    const auto want = talk(open(alone));
    for (const auto& [prefill, decode] : {std::pair(1, 0), {2, 0}, {3, 1}, {1, 3}, {3, 2}, {0, 0}, {0, 1}})
      for (bool share_memory : {true, false})
        expect_all_well(with_ranks(3, [&, prefill = prefill, decode = decode](auto ranks) {
          EngineOptions options = with_degrees(ranks, prefill, decode, codec);
          options.rank_options.share_memory = share_memory;
          const Engine engine = open(options);
          EXPECT_EQ(talk(engine), want) << codec << " " << prefill << " " << decode;
          const EngineInfo info = engine.info();
          if (prefill > 0) {
            EXPECT_EQ(info.prefill_ranks, prefill);
            EXPECT_EQ(info.decode_ranks, decode > 0 ? decode : prefill);
          }
          EXPECT_EQ(info.kv_bytes_in_use, 0U);
        }));
  }
}

// A message takes a millisecond, and so does a row.
dist::RingCosts slow_rows() {
  dist::RingCosts costs;
  costs.link.send = costs.link.exchange = {1e-3, 1e9};
  costs.segment_s = costs.row_s = 1e-6;
  costs.pass_s = 1e-3;
  costs.pass_row_s = 1e-3;
  return costs;
}

TEST(RankDegrees, ShortPromptsAreOneRanksAndLongOnesAllRanks) {
  expect_all_well(with_ranks(3, [&](auto ranks) {
    const Engine engine = open(with_degrees(ranks, 0, 0));
    RanksProbe::set_costs(engine, slow_rows());
    const Team& team = *RanksProbe::team(engine);
    EXPECT_EQ(team.quickest_degree(0, 3), 1);
    EXPECT_EQ(team.quickest_degree(0, 1500), 3);
    EXPECT_LT(team.predict_prompt(0, 1500, 3), team.predict_prompt(0, 1500, 2));
    EXPECT_LT(team.predict_prompt(0, 1500, 2), team.predict_prompt(0, 1500, 1));
    Session session = engine.start();
    append(session, prompt(3));
    value_of(session.generate(greedy(2)));
    EXPECT_EQ(engine.info().prefill_ranks, 1);
    EXPECT_EQ(engine.info().decode_ranks, 1);
    append(session, prompt(1500));  // the long one takes the short one's entries along
    value_of(session.generate(greedy(2)));
    EXPECT_EQ(engine.info().prefill_ranks, 3);
    EXPECT_EQ(engine.info().decode_ranks, 3);
    append(session, prompt(3));  // and a short one after it stays where all that is
    value_of(session.generate(greedy(2)));
    EXPECT_EQ(engine.info().prefill_ranks, 3);
  }));
}

TEST(RankDegrees, WhatOneRankCannotHoldGoesToAll) {
  const Engine alone = open();
  const auto bytes = static_cast<uint64_t>(alone.info().kv_bytes_per_token * 1100);
  auto script = [&](const Engine& engine) {
    Session session = engine.start();
    append(session, prompt(900));
    value_of(session.generate(greedy(2)));
    const int before = engine.info().prefill_ranks;
    append(session, prompt(3, 3));
    value_of(session.generate(greedy(250)));  // past what one rank has room for
    return std::pair(copy_of(session.tokens()), std::pair(before, engine.info().decode_ranks));
  };
  const auto want = script(alone).first;
  expect_all_well(with_ranks(2, [&](auto ranks) {
    EngineOptions options = with_degrees(ranks, 0, 0);
    options.kv_budget_bytes = bytes;
    const Engine engine = open(options);
    dist::RingCosts costs = slow_rows();
    costs.link.send = costs.link.exchange = {10, 1e9};
    RanksProbe::set_costs(engine, costs);
    const auto got = script(engine);
    EXPECT_EQ(got.first, want);
    EXPECT_EQ(got.second, std::pair(1, 2));
    options.rank_options.prefill_ranks = 1;  // who asks for one gets one
    const Engine fixed = open(options);
    Session session = fixed.start();
    append(session, prompt(1200));
    expect_error(session.prefill(), ErrorCode::kExhausted, "take more ranks");
  }));
}

TEST(RankDegrees, AServiceGivesShortRequestsARankEach) {
  const Engine alone = open();
  std::vector<std::vector<TokenId>> want;
  const auto tokens_of = [](uint32_t i) { return prompt(i % 2 == 0 ? 40 + i : 1400, i + 1); };
  for (uint32_t i = 0; i < 8; ++i) want.push_back(cold(alone, tokens_of(i), 12));
  for (int decode : {0, 2})
    expect_all_well(with_ranks(3, [&](auto ranks) {
      EngineOptions options = with_degrees(ranks, 0, decode);
      options.prefill_chunk = 64;
      const Engine engine = open(options);
      dist::RingCosts costs = slow_rows();
      costs.link.send.latency_s = costs.link.exchange.latency_s = 0.012;
      RanksProbe::set_costs(engine, costs);
      EXPECT_EQ(RanksProbe::team(engine)->quickest_degree(0, 40), 1);
      EXPECT_GT(RanksProbe::team(engine)->quickest_degree(0, 1400), 1);
      auto service = value_of(Service::start(engine, {}));
      for (int again = 0; again < 2; ++again) {
        std::vector<std::future<std::vector<TokenId>>> futures;
        for (uint32_t i = 0; i < 8; ++i) {
          auto state = std::make_shared<std::pair<std::vector<TokenId>, std::promise<std::vector<TokenId>>>>();
          futures.push_back(state->second.get_future());
          auto id = service->submit({.prompt = tokens_of(i), .options = greedy(12), .principal = {}},
                                    {[state](const Piece& piece) { state->first.push_back(piece.id); },
                                     [state](const ServiceAnswer& answer) {
                                       EXPECT_EQ(answer.error, "");
                                       state->first.resize(static_cast<size_t>(answer.completion_tokens));
                                       state->second.set_value(state->first);
                                     }});
          EXPECT_TRUE(id.has_value());
        }
        for (size_t i = 0; i < futures.size(); ++i) EXPECT_EQ(futures[i].get(), want[i]) << i << " " << decode;
      }
      service.reset();
      EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
    }));
}

TEST(RankDegrees, MoreThanThereAreAndMovesOfWhatIsLeftAreRefused) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    expect_error(Engine::open(with_degrees(ranks, 3, 0)), ErrorCode::kInvalidArgument, "3 ranks were asked for");
    expect_error(Engine::open(with_degrees(ranks, 0, -1)), ErrorCode::kInvalidArgument, "-1 ranks");
    EngineOptions options = with_degrees(ranks, 2, 1);
    options.kv_policy = "streaming", options.kv_budget = "128";
    expect_error(Engine::open(options), ErrorCode::kUnsupported, "KV policy 'streaming'");
    EXPECT_EQ(cold(open(over(ranks)), prompt(40), 3).size(), 3U);  // and goes on
  }));
}

}  // namespace
}  // namespace godwit
