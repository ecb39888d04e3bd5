// Many requests at once: each gets what it would have got alone.
#include <random>

#include "engine/service_testing.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(Service, AnswersAreThoseOfSessionsOfTheirOwn) {
  const Engine engine = open(small_engine()), alone = open(small_engine());
  auto service = serve(engine, {.most_running = 8});
  Client client(*service);
  std::vector<std::future<Outcome>> futures;
  std::vector<std::vector<TokenId>> want;
  for (uint32_t i = 0; i < 40; ++i) {
    const auto tokens = prompt(1 + i * 7 % 300, i % 5 + 1);  // some begin alike
    futures.push_back(client.ask({.prompt = tokens, .options = greedy(1 + static_cast<int>(i) % 30), .principal = {}}));
    want.push_back(cold(alone, tokens, 1 + static_cast<int>(i) % 30));
  }
  for (size_t i = 0; i < futures.size(); ++i) {
    const Outcome got = futures[i].get();
    EXPECT_EQ(got.answer.error, "");
    EXPECT_EQ(got.tokens, want[i]) << i;
    EXPECT_EQ(got.answer.finish, FinishReason::kLength);
    EXPECT_EQ(got.answer.completion_tokens, static_cast<int>(want[i].size()));
  }
  const ServiceStats stats = service->stats();
  EXPECT_EQ(stats.answered, 40u);
  EXPECT_GT(stats.cached_tokens, 0u);
  service.reset();
  EXPECT_EQ(engine.info().kv_bytes_in_use, 0u);
}

TEST(Service, WarmEqualsColdAndIsReported) {
  const Engine engine = open(small_engine());
  auto service = serve(engine);
  Client client(*service);
  const auto tokens = prompt(500);
  const Outcome cold_answer = client.ask({.prompt = tokens, .options = greedy(20), .principal = "a"}).get();
  const Outcome warm = client.ask({.prompt = tokens, .options = greedy(20), .principal = "a"}).get();
  const Outcome other = client.ask({.prompt = tokens, .options = greedy(20), .principal = "b"}).get();
  EXPECT_EQ(warm.tokens, cold_answer.tokens);
  EXPECT_EQ(other.tokens, cold_answer.tokens);
  EXPECT_EQ(cold_answer.answer.cached_tokens, 0);
  EXPECT_EQ(warm.answer.cached_tokens, 448);  // whole pages of the 499 tokens before the last
  EXPECT_EQ(other.answer.cached_tokens, 0);   // nobody sees what another's prompt left
  const Outcome salted =
      client.ask({.prompt = tokens, .options = greedy(20), .principal = "a", .salt = "pepper"}).get();
  EXPECT_EQ(salted.answer.cached_tokens, 0);
  EXPECT_EQ(salted.tokens, cold_answer.tokens);
  EXPECT_GT(service->stats().kv_bytes_in_use, 0u);
}

// Alone, in a batch, in steps of any size, after a prompt that left its K and V: the same numbers.
TEST(Service, EmbeddingsDependOnTheTextAlone) {
  std::vector<std::vector<float>> want;
  for (int chunk : {64, 16}) {
    const Engine engine = open(small_engine(chunk));
    auto service = serve(engine, {.most_running = 8});
    Client client(*service);
    client.ask({.prompt = prompt(200), .options = greedy(2), .principal = {}}).get();
    std::vector<std::future<Outcome>> futures;
    for (uint32_t i = 0; i < 12; ++i)
      futures.push_back(client.ask({.prompt = prompt(1 + i * 19, 1), .options = {}, .principal = {}, .embed = true}));
    auto text = client.ask({.prompt = prompt(150), .options = greedy(20), .principal = {}});
    for (size_t i = 0; i < futures.size(); ++i) {
      const ServiceAnswer answer = futures[i].get().answer;
      ASSERT_EQ(answer.error, "");
      EXPECT_EQ(answer.completion_tokens, 0);
      EXPECT_EQ(answer.cached_tokens, 0);
      double squares = 0;
      for (float value : answer.embedding) squares += static_cast<double>(value) * value;
      EXPECT_NEAR(squares, 1, 1e-5);
      if (chunk == 64) {
        want.push_back(answer.embedding);
      } else {
        EXPECT_EQ(answer.embedding, want[i]) << i;
      }
    }
    EXPECT_NE(want[0], want[1]);
    EXPECT_TRUE(text.get().answer.embedding.empty());
  }
}

TEST(Service, SaysWhichStopEndedAnAnswerAndWhatIsText) {
  const Engine engine = open(small_engine());
  auto service = serve(engine);
  Client client(*service);
  const Outcome free = client.ask({.prompt = prompt(20), .options = greedy(30), .principal = {}}).get();
  ASSERT_GT(free.text.size(), 8u);
  EXPECT_EQ(free.answer.stop, -1);
  GenerateOptions options = greedy(30);
  options.stop = {"no such text", free.text.substr(6, 2)};
  const Outcome stopped = client.ask({.prompt = prompt(20), .options = options, .principal = {}}).get();
  EXPECT_EQ(stopped.answer.stop, 1);
  EXPECT_EQ(stopped.answer.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.text, free.text.substr(0, free.text.find(options.stop[1])));
}

// So little memory that requests give way to one another; answers are the same.
TEST(Service, GivingWayChangesNoAnswer) {
  EngineOptions options = small_engine();
  const Engine alone = open(options);
  const EngineInfo info = alone.info();
  options.context_tokens = 700;
  options.kv_budget_bytes = static_cast<uint64_t>(info.kv_bytes_per_token * 1100);
  const Engine engine = open(options);
  auto service = serve(engine, {.most_running = 8});
  Client client(*service);
  std::vector<std::future<Outcome>> futures;
  for (uint32_t i = 0; i < 12; ++i) {
    const auto tokens = prompt(60 + 10 * i, i + 1);
    futures.push_back(client.ask({.prompt = tokens, .options = greedy(150), .principal = {}}));
  }
  for (size_t i = 0; i < futures.size(); ++i) {
    const Outcome got = futures[i].get();
    EXPECT_EQ(got.answer.error, "") << i;
    EXPECT_EQ(got.tokens, cold(alone, prompt(60 + 10 * i, static_cast<uint32_t>(i) + 1), 150)) << i;
  }
  EXPECT_GT(service->stats().gave_way, 0u);
}

TEST(Service, LimitsAreHard) {
  EngineOptions options = small_engine();
  options.context_tokens = 300;
  const Engine engine = open(options);
  auto service = serve(engine, {.most_running = 1, .most_waiting = 2});
  Client client(*service);
  expect_error(service->submit({.prompt = {}, .options = {}, .principal = {}}, {}), ErrorCode::kInvalidArgument,
               "empty");
  expect_error(service->submit({.prompt = {100000}, .options = {}, .principal = {}}, {}), ErrorCode::kInvalidArgument,
               "vocabulary");
  expect_error(service->submit({.prompt = prompt(300), .options = {}, .principal = {}}, {}),
               ErrorCode::kInvalidArgument, "context");
  GenerateOptions bad = greedy(3);
  bad.sampling.top_p = 2;
  expect_error(service->submit({.prompt = prompt(3), .options = bad, .principal = {}}, {}), ErrorCode::kInvalidArgument,
               "top");
  std::vector<std::future<Outcome>> futures;
  size_t refused = 0;
  for (int i = 0; i < 20; ++i) {
    auto done = std::make_shared<std::promise<Outcome>>();
    auto future = done->get_future();
    auto id = service->submit({.prompt = prompt(100), .options = greedy(40), .principal = {}},
                              {{}, [done](const ServiceAnswer&) { done->set_value({}); }});
    if (id) {
      futures.push_back(std::move(future));
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::kExhausted);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
  for (auto& future : futures) future.get();
  EXPECT_EQ(service->stats().refused, refused);
  // An answer without a limit ends where the context does.
  const Outcome full = client.ask({.prompt = prompt(250), .options = greedy(-1), .principal = {}}).get();
  EXPECT_EQ(full.answer.finish, FinishReason::kContextFull);
  EXPECT_EQ(full.tokens.size(), 50u);
}

TEST(Service, CancelledRequestsEndAndFreeTheirMemory) {
  const Engine engine = open(small_engine());
  auto service = serve(engine, {.most_running = 4});
  Client client(*service);
  std::mt19937 random(3);
  std::vector<std::pair<uint64_t, std::future<Outcome>>> open_requests;
  for (int i = 0; i < 60; ++i) {
    auto future =
        client.ask({.prompt = prompt(200, static_cast<uint32_t>(i)), .options = greedy(2000), .principal = {}});
    open_requests.emplace_back(client.last_id, std::move(future));
    if (random() % 2 == 0) service->cancel(open_requests[random() % open_requests.size()].first);
  }
  service->cancel(999999);
  size_t cancelled = 0;
  for (auto& [id, future] : open_requests) {
    service->cancel(id);
    const FinishReason finish = future.get().answer.finish;
    EXPECT_TRUE(finish == FinishReason::kCancelled || finish == FinishReason::kContextFull);
    cancelled += finish == FinishReason::kCancelled ? 1 : 0;
  }
  EXPECT_GT(cancelled, 30u);
  EXPECT_EQ(service->stats().running + service->stats().waiting, 0u);
  service.reset();
  EXPECT_EQ(engine.info().kv_bytes_in_use, 0u);
}

TEST(Service, ItsEndEndsEverything) {
  const Engine engine = open(small_engine());
  auto service = serve(engine, {.most_running = 2});
  Client client(*service);
  std::vector<std::future<Outcome>> futures;
  for (uint32_t i = 0; i < 6; ++i)
    futures.push_back(client.ask({.prompt = prompt(100, i), .options = greedy(5000), .principal = {}}));
  service.reset();
  for (auto& future : futures) EXPECT_EQ(future.get().answer.finish, FinishReason::kCancelled);
}

TEST(Service, SessionsOfTheSameEngineGoOnBesideIt) {
  const Engine engine = open(small_engine());
  auto service = serve(engine);
  Client client(*service);
  const auto tokens = prompt(150);
  auto future = client.ask({.prompt = tokens, .options = greedy(60), .principal = {}});
  const auto want = cold(engine, tokens, 60);
  EXPECT_EQ(future.get().tokens, want);
}

TEST(Service, RefusesWhatItCannotServe) {
  EngineOptions options = small_engine();
  options.decode = "resa";
  expect_error(Service::start(open(options), {}), ErrorCode::kUnsupported, "repair=0");
  expect_error(Service::start(open(), {.most_running = 0}), ErrorCode::kInvalidArgument, "at once");
}

}  // namespace
}  // namespace godwit
