// What requests to a service over several ranks, here threads, may choose: how many of them, and a KV policy.
#include <algorithm>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "engine/service_testing.h"
#include "engine/test_ranks.h"

namespace godwit {
namespace {

using namespace engine_test;

ServiceRequest request(std::vector<TokenId> tokens, int count, RankDegrees ranks = {}) {
  return {.prompt = std::move(tokens), .options = greedy(count), .principal = {}, .ranks = ranks};
}

EngineOptions automatic(std::shared_ptr<Ranks> ranks) {
  EngineOptions options = over(std::move(ranks));
  options.rank_options.prefill_ranks = 0;
  options.prefill_chunk = 64;
  return options;
}

TEST(ServiceRankChoices, RequestsHaveTheRanksTheyAskForAndSayWhich) {
  const Engine alone = open();
  const auto tokens_of = [](uint32_t i) { return prompt(900 + 150 * i, i + 1); };
  const std::vector<RankDegrees> asked = {{1, 0}, {2, 0}, {3, 1}, {1, 3}, {0, 2}, {0, 0}};
  expect_all_well(with_ranks(3, [&](auto ranks) {
    const Engine engine = open(automatic(ranks));
    auto service = serve(engine, {.most_ranks = 3});
    Client client(*service);
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < asked.size(); ++i) futures.push_back(client.ask(request(tokens_of(i), 5, asked[i])));
    for (uint32_t i = 0; i < asked.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.tokens, cold(alone, tokens_of(i), 5)) << i;
      const RankDegrees took = got.answer.ranks;
      EXPECT_EQ(took.prefill, asked[i].prefill > 0 ? asked[i].prefill : std::clamp(took.prefill, 1, 3)) << i;
      EXPECT_EQ(took.decode, asked[i].decode > 0 ? asked[i].decode : took.prefill) << i;
    }
    // What another left on one rank moves to those that are asked for.
    const Outcome again = client.ask(request(tokens_of(0), 5, {3, 0})).get();
    EXPECT_EQ(again.tokens, cold(alone, tokens_of(0), 5));
    EXPECT_EQ(again.answer.ranks, (RankDegrees{3, 3}));
    EXPECT_EQ(again.answer.cached_tokens, 896);
    service.reset();
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
  }));
}

TEST(ServiceRankChoices, WithinWhatTheOperatorAllows) {
  expect_error(Service::start(open(), {.most_ranks = 2}), ErrorCode::kInvalidArgument, "start more with mpirun");
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(automatic(ranks));
    expect_error(Service::start(engine, {.most_ranks = 3}), ErrorCode::kInvalidArgument, "3 ranks where there are 2");
    auto none = serve(engine);
    expect_error(none->submit(request(prompt(20), 1, {1, 0}), {}), ErrorCode::kInvalidArgument, "may not choose");
    none.reset();
    auto one = serve(engine, {.most_ranks = 1});
    expect_error(one->submit(request(prompt(20), 1, {2, 0}), {}), ErrorCode::kInvalidArgument, "1 to 1");
    expect_error(one->submit(request(prompt(20), 1, {1, 2}), {}), ErrorCode::kInvalidArgument, "1 to 1");
    expect_error(one->check({-1, 0}, {}), ErrorCode::kInvalidArgument, "-1 ranks");
    EXPECT_TRUE(one->check({1, 1}, {}).has_value());
    EXPECT_EQ(Client(*one).ask(request(prompt(20), 3, {1, 1})).get().answer.ranks, (RankDegrees{1, 1}));
  }));
}

// In fp32: sums over ranks round otherwise than those of one process, and by little there.
EngineOptions exact_options(EngineOptions options = options_for("qwen3")) {
  options.prefill_chunk = 128;
  options.threads = 1;
  options.kv_codec = "f32";
  options.simd = cpu_simd_targets().back();
  return options;
}

const std::vector<KvChoice> kChoices = {
    {"streaming", "200", "chunk"}, {"random", "25%", "prefill"},    {"none", "", ""},
    {"infinipot", "256", "chunk"}, {"streaming", "30%", "prefill"}, {"snapkv", "25%", "prefill"},
    {"h2o", "300", "chunk"},       {"chelsea", "40%", "chunk"}};

TEST(ServiceRankChoices, PoliciesKeepWhatASessionKeeps) {
  const auto tokens_of = [](size_t i) { return prompt(700 + 100 * i, static_cast<uint32_t>(i + 1)); };
  std::vector<std::vector<TokenId>> want;
  for (size_t i = 0; i < kChoices.size(); ++i) {
    EngineOptions options = exact_options();
    if (kChoices[i].policy != "none")
      options.kv_policy = kChoices[i].policy, options.kv_budget = kChoices[i].budget,
      options.kv_trigger = kChoices[i].trigger;
    want.push_back(cold(open(options), tokens_of(i), 12));
  }
  for (int count : {2, 3})
    expect_all_well(with_ranks(count, [&](auto ranks) {
      const Engine engine = open(over(ranks, exact_options()));
      auto service =
          serve(engine, {.kv = {.policies = {"none", "streaming", "random", "infinipot", "snapkv", "h2o", "chelsea"}}});
      for (int again = 0; again < 2; ++again) {
        Client client(*service);
        std::vector<std::future<Outcome>> futures;
        for (size_t i = 0; i < kChoices.size(); ++i) {
          ServiceRequest one = request(tokens_of(i), 12);
          one.kv = kChoices[i];
          futures.push_back(client.ask(std::move(one)));
        }
        for (size_t i = 0; i < futures.size(); ++i) {
          const Outcome got = futures[i].get();
          EXPECT_EQ(got.answer.error, "");
          EXPECT_EQ(got.tokens, want[i]) << kChoices[i].policy << " " << again << " of " << count;
          // Only what was never dropped is found again.
          EXPECT_EQ(got.answer.cached_tokens > 0, again == 1 && kChoices[i].policy == "none") << i;
        }
      }
      service.reset();
      EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
    }));
}

TEST(ServiceRankChoices, APolicyTakesWhatOthersLeftAndFreesMemoryOnEveryRank) {
  EngineOptions options = exact_options();
  options.kv_policy = "streaming", options.kv_budget = "10%", options.kv_trigger = "prefill";
  const auto want = cold(open(options), prompt(2000), 12);
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(over(ranks, exact_options()));
    auto service = serve(engine, {.kv = {.policies = {"none", "streaming"}}});
    Client client(*service);
    ServiceRequest whole = request(prompt(2000), 1);
    whole.kv = KvChoice{"none", "", ""};
    EXPECT_EQ(client.ask(whole).get().answer.cached_tokens, 0);
    std::vector<RequestStatus> told;
    std::promise<Outcome> end;
    ServiceRequest held = request(prompt(2000), 12);
    held.kv = KvChoice{"streaming", "10%", "prefill"};
    Outcome got;
    ASSERT_TRUE(service->submit(held, {.on_piece = [&](const Piece& piece) { got.tokens.push_back(piece.id); },
                                       .on_end =
                                           [&](const ServiceAnswer& answer) {
                                             got.answer = answer;
                                             end.set_value(got);
                                           },
                                       .on_progress = [&](const RequestStatus& s) { told.push_back(s); }}));
    const Outcome outcome = end.get_future().get();
    EXPECT_EQ(outcome.answer.cached_tokens, 1984);
    EXPECT_EQ(std::vector(outcome.tokens.begin(), outcome.tokens.begin() + 12), want);
    ASSERT_FALSE(told.empty());
    EXPECT_NEAR(told.back().kv_retained, 0.1, 0.02);
    // 200 entries a head in two layers, at most 4 pages and one that is not full on each rank.
    EXPECT_LE(told.back().kv_bytes, 2U * 6 * (64 * 32 * 8 + 512));
    EXPECT_EQ(told.back().ranks.prefill, 2);
  }));
}

TEST(ServiceRankChoices, TheEnginesOwnPolicyHoldsForAllRequests) {
  EngineOptions options = exact_options();
  options.kv_policy = "streaming", options.kv_budget = "150", options.kv_trigger = "chunk";
  const Engine alone = open(options);
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(over(ranks, options));
    auto service = serve(engine);
    Client client(*service);
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 4; ++i) futures.push_back(client.ask(request(prompt(300 + 250 * i, i + 1), 8)));
    for (uint32_t i = 0; i < 4; ++i)
      EXPECT_EQ(futures[i].get().tokens, cold(alone, prompt(300 + 250 * i, i + 1), 8)) << i;
  }));
}

TEST(ServiceRankChoices, GivingWayChangesNoAnswerOfAPolicy) {
  for (const char* policy : {"random", "h2o"}) {
    EngineOptions options = exact_options();
    options.kv_policy = policy, options.kv_budget = "50%", options.kv_trigger = "chunk";
    const Engine alone = open(options);
    std::vector<std::vector<TokenId>> want;
    for (uint32_t i = 0; i < 10; ++i) want.push_back(cold(alone, prompt(200 + 20 * i, i + 1), 100));
    expect_all_well(with_ranks(2, [&](auto ranks) {
      EngineOptions small = over(ranks, options);
      small.context_tokens = 700;
      small.kv_budget_bytes = static_cast<uint64_t>(alone.info().kv_bytes_per_token * 800);  // of each rank
      const Engine engine = open(small);
      auto service = serve(engine, {.most_running = 10});
      Client client(*service);
      std::vector<std::future<Outcome>> futures;
      for (uint32_t i = 0; i < 10; ++i) futures.push_back(client.ask(request(prompt(200 + 20 * i, i + 1), 100)));
      for (size_t i = 0; i < futures.size(); ++i) {
        const Outcome got = futures[i].get();
        EXPECT_EQ(got.answer.error, "") << i;
        EXPECT_EQ(got.tokens, want[i]) << policy << " " << i;
      }
      EXPECT_GT(service->stats().gave_way, 0U);
    }));
  }
}

TEST(ServiceRankChoices, PoliciesThatDoNotWorkOverRanksAreRefusedByName) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    EngineOptions sealing = over(ranks, exact_options());
    sealing.kv_codec = "q4:last=64";
    expect_error(Service::start(open(sealing), {.kv = {.policies = {"none", "zipcache"}}}), ErrorCode::kUnsupported,
                 "KV policy 'zipcache' does not work over 2 ranks");
    const Engine engine = open(over(ranks, exact_options()));
    auto service = serve(engine, {.kv = {.policies = {"streaming"}}, .most_ranks = 2});
    ServiceRequest one = request(prompt(20), 1, {2, 1});
    one.kv = KvChoice{"streaming", "50%", ""};
    expect_error(service->submit(one, {}), ErrorCode::kInvalidArgument, "KV policy 'streaming'");
    one.ranks = {1, 1};
    EXPECT_EQ(Client(*service).ask(one).get().answer.ranks.prefill, 1);
  }));
}

}  // namespace
}  // namespace godwit
