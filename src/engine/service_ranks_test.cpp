// A service over several ranks, here threads: answers of one process, shared beginnings, memory, and lost ranks.
#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "engine/test_ranks.h"
#include <godwit/service.h>

namespace godwit {
namespace {

using namespace engine_test;

struct Outcome {
  std::vector<TokenId> tokens;
  ServiceAnswer answer;
};

std::future<Outcome> ask(Service& service, ServiceRequest request, uint64_t* id = nullptr) {
  auto state = std::make_shared<std::pair<Outcome, std::promise<Outcome>>>();
  std::future<Outcome> future = state->second.get_future();
  auto submitted =
      service.submit(std::move(request), {[state](const Piece& piece) { state->first.tokens.push_back(piece.id); },
                                          [state](const ServiceAnswer& answer) {
                                            state->first.answer = answer;
                                            state->first.tokens.resize(static_cast<size_t>(answer.completion_tokens));
                                            state->second.set_value(std::move(state->first));
                                          }});
  EXPECT_TRUE(submitted.has_value()) << submitted.error().message;
  if (id != nullptr) *id = submitted.value_or(0);
  return future;
}

ServiceRequest request(std::vector<TokenId> tokens, int count, std::string principal = {}) {
  return {.prompt = std::move(tokens), .options = greedy(count), .principal = std::move(principal)};
}

EngineOptions small_chunks(std::shared_ptr<Ranks> ranks) {
  EngineOptions options = over(std::move(ranks));
  options.prefill_chunk = 64;
  return options;
}

class ServiceDegrees : public testing::TestWithParam<int> {};

TEST_P(ServiceDegrees, AnswersAreThoseOfOneProcess) {
  constexpr uint32_t kRequests = 24;
  const auto tokens_of = [](uint32_t i) { return prompt(1 + i * 97 % 1500, i % 5 + 1); };  // some begin alike
  const auto count_of = [](uint32_t i) { return 1 + static_cast<int>(i) % 20; };
  std::vector<std::vector<TokenId>> want;
  {
    const Engine alone = open();
    for (uint32_t i = 0; i < kRequests; ++i) want.push_back(cold(alone, tokens_of(i), count_of(i)));
  }
  expect_all_well(with_ranks(GetParam(), [&](auto ranks) {
    const Engine engine = open(small_chunks(ranks));
    uint64_t one_by_one = UINT64_MAX;
    for (int most_running : {1, 8}) {
      auto service = value_of(Service::start(engine, {.most_running = most_running}));
      std::vector<std::future<Outcome>> futures;
      for (uint32_t i = 0; i < kRequests; ++i) futures.push_back(ask(*service, request(tokens_of(i), count_of(i))));
      for (size_t i = 0; i < futures.size(); ++i) {
        const Outcome got = futures[i].get();
        EXPECT_EQ(got.answer.error, "");
        EXPECT_EQ(got.tokens, want[i]) << i;
      }
      const ServiceStats stats = service->stats();
      EXPECT_EQ(stats.answered, kRequests);
      EXPECT_GT(stats.cached_tokens, 0u);
      EXPECT_LT(stats.steps, one_by_one);  // several go on in one step
      one_by_one = stats.steps * 3 / 4;
    }
    EXPECT_EQ(engine.info().kv_bytes_in_use, 0u);
  }));
}
INSTANTIATE_TEST_SUITE_P(Ranks, ServiceDegrees, testing::Values(2, 3, 4));

TEST(ServiceOverRanks, WhoBeginsAlikeReusesThePagesWhereTheyLie) {
  const auto tokens = prompt(1500);
  std::vector<TokenId> longer = tokens;
  for (TokenId token : prompt(300, 9)) longer.push_back(token);
  const auto want = cold(open(), tokens, 12), want_longer = cold(open(), longer, 12);
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(small_chunks(ranks));
    auto service = value_of(Service::start(engine, {}));
    const auto answer = [&](const std::vector<TokenId>& what, std::string who, int cached) {
      const Outcome got = ask(*service, request(what, 12, std::move(who))).get();
      EXPECT_EQ(got.answer.cached_tokens, cached);
      return got.tokens;
    };
    EXPECT_EQ(answer(tokens, "a", 0), want);
    EXPECT_EQ(answer(tokens, "a", 1472), want);  // whole pages of the 1,499 before the last
    EXPECT_EQ(answer(longer, "a", 1472), want_longer);
    EXPECT_EQ(answer(longer, "a", 1792), want_longer);
    EXPECT_EQ(answer(tokens, "a", 1472), want);  // the longer one holds it, too
    EXPECT_EQ(answer(tokens, "b", 0), want);     // nobody sees what another's prompt left
  }));
}

TEST(ServiceOverRanks, GivingWayChangesNoAnswer) {
  const Engine alone = open();
  std::vector<std::vector<TokenId>> want;
  for (uint32_t i = 0; i < 10; ++i) want.push_back(cold(alone, prompt(60 + 10 * i, i + 1), 150));
  expect_all_well(with_ranks(2, [&](auto ranks) {
    EngineOptions options = small_chunks(ranks);
    options.context_tokens = 700;
    options.kv_budget_bytes = static_cast<uint64_t>(alone.info().kv_bytes_per_token * 800);  // of each rank
    const Engine engine = open(options);
    auto service = value_of(Service::start(engine, {.most_running = 8}));
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 10; ++i) futures.push_back(ask(*service, request(prompt(60 + 10 * i, i + 1), 150)));
    for (size_t i = 0; i < futures.size(); ++i) {
      const Outcome got = futures[i].get();
      EXPECT_EQ(got.answer.error, "") << i;
      EXPECT_EQ(got.tokens, want[i]) << i;
    }
    EXPECT_GT(service->stats().gave_way, 0u);
  }));
}

TEST(ServiceOverRanks, CancelledRequestsLeaveTheOthersAlone) {
  const auto want = cold(open(), prompt(200, 2), 40);
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(small_chunks(ranks));
    auto service = value_of(Service::start(engine, {}));
    uint64_t id = 0;
    auto gone = ask(*service, request(prompt(1900), 100), &id);
    auto stays = ask(*service, request(prompt(200, 2), 40));
    service->cancel(id);
    EXPECT_EQ(gone.get().answer.finish, FinishReason::kCancelled);
    EXPECT_EQ(stays.get().tokens, want);
  }));
}

TEST(ServiceOverRanks, EmbeddingsAreRefused) {
  expect_all_well(with_ranks(2, [&](auto ranks) {
    const Engine engine = open(small_chunks(ranks));
    auto service = value_of(Service::start(engine, {}));
    expect_error(service->submit({.prompt = prompt(20), .options = {}, .principal = {}, .embed = true}, {}),
                 ErrorCode::kUnsupported, "embeddings");
  }));
}

TEST(ServiceOverRanks, ALostRankFailsTheRequestsByNameAndNoMoreAreTaken) {
  std::atomic<bool> breaks = false;
  const auto said = with_ranks(
      3,
      [&](auto ranks) {
        const Engine engine = open(small_chunks(ranks));
        std::promise<void> lost;
        auto service = value_of(Service::start(engine, {.on_lost = [&] { lost.set_value(); }}));
        EXPECT_EQ(ask(*service, request(prompt(100), 3)).get().answer.error, "");
        breaks = true;
        auto one = ask(*service, request(prompt(1200), 30)), two = ask(*service, request(prompt(900, 2), 30));
        EXPECT_NE(one.get().answer.error.find("rank 2 sent"), std::string::npos);
        EXPECT_NE(two.get().answer.error.find("rank 2 sent"), std::string::npos);
        lost.get_future().wait();
        EXPECT_FALSE(service->status().has_value());
        expect_error(service->submit(request(prompt(10), 1), {}), ErrorCode::kBadData, "rank 2 sent");
      },
      {[&](int from, int to, std::span<std::byte> message) {
        const bool slots = message[4] == static_cast<std::byte>(dist::FrameKind::kSlots);
        if (breaks && from == 2 && to == 0 && slots) message[24] ^= std::byte{1};
      }});
  EXPECT_FALSE(said[1].has_value() && said[2].has_value());
}

// What rank 2 tells rank 0 of keys and values is spoilt from `broken` on: as if it were gone.
dist::LocalFaults spoilt(const std::atomic<bool>& broken) {
  return {.tamper =
              [&](int from, int to, std::span<std::byte> message) {
                const auto kind = static_cast<dist::FrameKind>(message[4]);
                const bool told = kind == dist::FrameKind::kSlots || kind == dist::FrameKind::kPages;
                if (broken && from == 2 && to == 0 && told) message[24] ^= std::byte{1};
              },
          .outlives_ranks = true};
}

// A job that outlives its ranks: whatever was going on, no answer changes by a token.
TEST(ServiceOverRanks, WhatHadBegunGoesOnAloneWhereTheJobOutlivesItsRanks) {
  std::vector<std::vector<TokenId>> want;
  {
    const Engine alone = open();
    for (uint32_t i = 0; i < 6; ++i) want.push_back(cold(alone, prompt(100 + 300 * i, i + 1), 40));
  }
  std::atomic<bool> broken = false;
  const auto said = with_ranks(
      3,
      [&](auto ranks) {
        const Engine engine = open(small_chunks(ranks));
        std::promise<std::string> left;
        auto service = value_of(Service::start(
            engine,
            {.most_running = 4, .most_ranks = 3, .on_alone = [&](const std::string& why) { left.set_value(why); }}));
        EXPECT_EQ(service->stats().ranks, 3);
        // One that has said something, some that are read, some that wait; and one that insists on ranks.
        std::promise<void> speaks;
        std::atomic<int> pieces = 0;
        std::vector<TokenId> first;
        std::promise<ServiceAnswer> first_over;
        value_of(service->submit(request(prompt(100, 1), 40),
                                 {[&](const Piece& piece) {
                                    first.push_back(piece.id);
                                    if (++pieces == 5) speaks.set_value();
                                  },
                                  [&](const ServiceAnswer& answer) { first_over.set_value(answer); }}));
        speaks.get_future().wait();
        std::vector<std::future<Outcome>> others;
        for (uint32_t i = 1; i < 6; ++i) others.push_back(ask(*service, request(prompt(100 + 300 * i, i + 1), 40)));
        ServiceRequest insists = request(prompt(700, 9), 40);
        insists.ranks = {2, 2};
        auto insisting = ask(*service, std::move(insists));
        broken = true;
        EXPECT_NE(left.get_future().get().find("rank 2 sent"), std::string::npos);
        const ServiceAnswer answer = first_over.get_future().get();
        EXPECT_EQ(answer.error, "");
        first.resize(static_cast<size_t>(answer.completion_tokens));
        EXPECT_EQ(first, want[0]);
        for (size_t i = 0; i < others.size(); ++i) {
          const Outcome got = others[i].get();
          EXPECT_EQ(got.answer.error, "");
          EXPECT_EQ(got.tokens, want[i + 1]) << i;
        }
        EXPECT_NE(insisting.get().answer.error.find("rank 2 sent"), std::string::npos);
        // From then on it is a service of one process.
        EXPECT_TRUE(service->status().has_value());
        EXPECT_EQ(service->stats().ranks, 1);
        EXPECT_NE(service->stats().lost_ranks.find("rank 2 sent"), std::string::npos);
        EXPECT_EQ(engine.info().ranks, 1);
        const Outcome again = ask(*service, request(prompt(1600, 6), 40)).get();
        EXPECT_EQ(again.tokens, want[5]);
        EXPECT_EQ(again.answer.cached_tokens, 1536);  // the cache of prefixes is of this process now
        insists = request(prompt(10), 1);
        insists.ranks = {2, 0};
        expect_error(service->submit(insists, {}), ErrorCode::kUnsupported, "2 ranks were asked for, and one is left");
        EXPECT_TRUE(service->submit({.prompt = prompt(20), .options = {}, .principal = {}, .embed = true}, {}));
        service.reset();
        EXPECT_EQ(engine.info().kv_bytes_in_use, 0u);
        EXPECT_EQ(cold(engine, prompt(100, 1), 40), want[0]);  // and sessions may begin
      },
      spoilt(broken));
  EXPECT_FALSE(said[1].has_value() && said[2].has_value());
}

TEST(ServiceOverRanks, ARankThatIsLostWhileNothingGoesOnIsNoticed) {
  auto links = dist::make_local_links(2, {.outlives_ranks = true});
  std::thread follower([&, link = std::move(links[1])]() mutable {
    Ranks ranks(std::make_unique<Ranks::Impl>(std::move(link)));
    ranks.impl().transport.options().idle_timeouts = 1e9;
    EXPECT_TRUE(ranks.impl().join());
    (void)ranks.follow();
  });
  {
    auto ranks = std::make_shared<Ranks>(std::make_unique<Ranks::Impl>(std::move(links[0])));
    EXPECT_TRUE(ranks->impl().join());
    const Engine engine = open(small_chunks(ranks));
    std::promise<void> alone;
    auto service = value_of(Service::start(engine, {.on_alone = [&](const std::string&) { alone.set_value(); }}));
    {
      std::lock_guard lock(ranks->impl().mutex);
      (void)ranks->impl().tell({.verb = RankVerb::kEnd});  // as if it were of its own
      (void)ranks->impl().transport.fail({ErrorCode::kIo, "rank 1 has ended"});
    }
    alone.get_future().wait();
    EXPECT_EQ(ask(*service, request(prompt(50), 3)).get().tokens, cold(open(), prompt(50), 3));
  }
  follower.join();
}

// With codecs that seal pages and requests with policies, and amid a prompt; one that one rank has no room for fails.
TEST(ServiceOverRanks, WhateverAStepWasAmidOf) {
  for (const std::string codec : {"f16", "kivi:k=4,v=4,last=0"})
    for (int before = 0; before < 6; ++before) {  // so many prompts begin at ranks before
      const bool outlives = before < 3;
      SCOPED_TRACE(fmt::format("{} {}", codec, before));
      std::atomic<bool> broken = false;
      dist::LocalFaults faults = spoilt(broken);
      faults.outlives_ranks = outlives;
      EngineOptions options = options_for("qwen3");
      options.kv_codec = codec;
      std::vector<TokenId> want;
      {
        EngineOptions one = options;
        one.threads = 1, one.prefill_chunk = 64;
        want = cold(open(one), prompt(110), 8);
      }
      with_ranks(
          3,
          [&](auto ranks) {
            EngineOptions over_three = over(ranks, options);
            over_three.prefill_chunk = 64;
            over_three.kv_budget_bytes = static_cast<uint64_t>(open().info().kv_bytes_per_token * 1100);
            const Engine engine = open(over_three);
            const bool drops_too = codec == "f16";
            ServiceOptions service_options;
            if (drops_too) service_options.kv.policies = {"streaming"};
            auto service = value_of(Service::start(engine, service_options));
            for (int i = 0; i < before % 3; ++i) EXPECT_EQ(ask(*service, request(prompt(5), 1)).get().answer.error, "");
            broken = true;
            auto whole = ask(*service, request(prompt(110), 8));
            auto large = ask(*service, request(prompt(1900), 8));
            ServiceRequest drops = request(prompt(400, 3), 8);
            if (drops_too) drops.kv = KvChoice{"streaming", "50%", {}};
            auto dropping = ask(*service, std::move(drops));
            const Outcome got = whole.get();
            if (outlives) {
              EXPECT_EQ(got.answer.error, "");
              EXPECT_EQ(got.tokens, want);
            } else if (!got.answer.error.empty()) {  // it may have begun where rank 2 has nothing to say
              EXPECT_NE(got.answer.error.find("rank 2 sent"), std::string::npos) << got.answer.error;
            }
            EXPECT_NE(large.get().answer.error.find("rank 2 sent"), std::string::npos);  // the reason, either way
            const std::string error = dropping.get().answer.error;
            EXPECT_EQ(error.empty() ? "" : error.substr(0, 11), outlives ? "" : "rank 2 sent");
          },
          faults);
    }
}

TEST(Service, OneProcessSaysHowManyRanksThereAre) {
  const Engine engine = open();
  auto service = value_of(Service::start(engine, {.most_ranks = 1}));
  ServiceRequest two = request(prompt(10), 1);
  two.ranks = {2, 0};
  expect_error(service->submit(two, {}), ErrorCode::kInvalidArgument, "1 to 1");
}

// Sessions beside the service hold keys and values that are gone.
TEST(ServiceOverRanks, WithSessionsBesideItAServiceDoesNotGoOn) {
  std::atomic<bool> broken = false;
  with_ranks(
      3,
      [&](auto ranks) {
        const Engine engine = open(small_chunks(ranks));
        Session beside = engine.start();
        std::promise<void> lost;
        auto service = value_of(Service::start(engine, {.on_lost = [&] { lost.set_value(); }}));
        broken = true;
        auto one = ask(*service, request(prompt(1200), 30));
        const std::string error = one.get().answer.error;
        EXPECT_NE(error.find("rank 2 sent"), std::string::npos);
        EXPECT_NE(error.find("sessions of this engine"), std::string::npos);
        lost.get_future().wait();
        EXPECT_FALSE(service->status().has_value());
      },
      spoilt(broken));
}

}  // namespace
}  // namespace godwit
