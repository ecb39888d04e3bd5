// Ranks, here threads, of which one is slow: it computes less of prompts, and answers are those of one process.
#include <atomic>
#include <chrono>

#include <gtest/gtest.h>

#include "engine/ranks_probe.h"
#include "engine/service_testing.h"
#include "engine/test_ranks.h"

namespace godwit {
namespace {

using namespace engine_test;

// Rank 1 takes its time over each message of new keys and values: two a step in a model of two layers.
dist::LocalFaults slow_rank(const std::atomic<bool>& slow) {
  return {[&slow](int from, int, std::span<std::byte> message) {
    if (slow && from == 1 && message[4] == static_cast<std::byte>(dist::FrameKind::kSlots))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }};
}

std::vector<uint64_t> rows_of(const Engine& engine) {
  std::vector<uint64_t> rows;
  for (const RankReport& report : value_of(RanksProbe::team(engine)->report())) rows.push_back(report.times.rows);
  return rows;
}

TEST(Balance, ASlowRankComputesLessAndNoBitChanges) {
  for (const char* codec : {"f16", "q4:last=64"}) {
    EngineOptions alone = options_for("qwen3");
    alone.kv_codec = codec;
    const Talk want = talk(open(alone), 5, 400);
    for (const char* ring : {"pass-kv", "pass-q"})
      for (bool share_memory : {true, false}) {
        const std::atomic<bool> slow = true;
        expect_all_well(with_ranks(
            2,
            [&](auto ranks) {
              EngineOptions options = over(ranks, alone);
              options.rank_options.ring = ring;
              options.rank_options.share_memory = share_memory;
              const Engine engine = open(options);
              EXPECT_EQ(talk(engine, 5, 400), want) << codec << " " << ring << " " << share_memory;
              const auto rows = rows_of(engine);
              EXPECT_LT(rows[1] * 3, rows[0] * 2) << codec << " " << ring << " " << share_memory;
            },
            slow_rank(slow)));
      }
  }
}

TEST(Balance, WithoutItAllComputeEquallyMuch) {
  const std::atomic<bool> slow = true;
  expect_all_well(with_ranks(
      2,
      [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.rank_options.balance = false;
        const Engine engine = open(options);
        Session session = engine.start();
        append(session, prompt(1024));
        ASSERT_TRUE(session.prefill().has_value());
        EXPECT_EQ(rows_of(engine), (std::vector<uint64_t>{512, 512}));
        EXPECT_TRUE(RanksProbe::team(engine)->shares().empty());
      },
      slow_rank(slow)));
}

// Generated tokens are dealt out as ever, and say nothing of speeds.
TEST(Balance, AnswersChangeNoShares) {
  const std::atomic<bool> slow = true;
  expect_all_well(with_ranks(
      2,
      [&](auto ranks) {
        const Engine engine = open(over(ranks));
        Session session = engine.start();
        append(session, prompt(1000));
        ASSERT_TRUE(session.prefill().has_value());
        const dist::Shares shares = RanksProbe::team(engine)->shares();
        EXPECT_LT(shares.at(1), dist::kWholeShare * 2 / 3);
        value_of(session.generate(greedy(30)));
        EXPECT_EQ(RanksProbe::team(engine)->shares(), shares);
      },
      slow_rank(slow)));
}

// Each step is as long as the shares of that moment allow, whoever's it is.
TEST(Balance, SessionsOfSeveralThreadsTakeTurns) {
  const auto want = cold(open(), prompt(1500), 4);
  std::atomic<bool> slow = true;
  expect_all_well(with_ranks(
      2,
      [&](auto ranks) {
        const Engine engine = open(over(ranks));
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i)
          threads.emplace_back([&, i] {
            for (int again = 0; again < 2; ++again) {
              EXPECT_EQ(cold(engine, prompt(1500), 4), want);
              if (i == 0) slow = again == 1;
            }
          });
        for (std::thread& thread : threads) thread.join();
      },
      slow_rank(slow)));
}

// What a long prompt finds left beside a short one holds less of it than of ranks that are alike. The rest of it must
// not begin in the same step, whose keys and values the others may not have written yet.
TEST(Balance, AServersStepHasOnePartOfARequest) {
  const Engine alone = open();
  const auto tokens_of = [](uint32_t i) { return prompt(440 + i, i + 1); };
  const std::atomic<bool> slow = true;
  expect_all_well(with_ranks(
      2,
      [&](auto ranks) {
        EngineOptions options = over(ranks);
        options.prefill_chunk = 130;
        const Engine engine = open(options);
        auto service = serve(engine);
        Client client(*service);
        std::vector<std::future<Outcome>> futures;
        for (uint32_t i = 0; i < 8; ++i)
          futures.push_back(client.ask({.prompt = tokens_of(i), .options = greedy(4), .principal = {}}));
        for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(futures[i].get().tokens, cold(alone, tokens_of(i), 4)) << i;
        EXPECT_LT(RanksProbe::team(engine)->shares().at(1), dist::kWholeShare / 2);
      },
      slow_rank(slow)));
}

}  // namespace
}  // namespace godwit
