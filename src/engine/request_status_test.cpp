// What a service says of requests that are not over.
#include <future>
#include <latch>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include <godwit/service.h>

namespace godwit {
namespace {

using namespace engine_test;
using State = RequestStatus::State;

EngineOptions small_engine() {
  EngineOptions options = options_for("qwen3");
  options.prefill_chunk = 64;
  return options;
}

TEST(RequestStatus, ShowsWhoWaitsAndWhoGenerates) {
  const Engine engine = open(small_engine());
  auto service = value_of(Service::start(engine, {.most_running = 1}));
  std::latch spoke(1), seen(1), over(2);
  bool first = true;
  const auto on_end = [&](const ServiceAnswer&) { over.count_down(); };
  ASSERT_TRUE(service->submit({.prompt = prompt(300), .options = greedy(5), .principal = "ann", .name = "one"},
                              {[&](const Piece&) {
                                 if (!std::exchange(first, false)) return;
                                 spoke.count_down();
                                 seen.wait();  // the service stands still
                               },
                               on_end}));
  spoke.wait();
  ASSERT_TRUE(
      service->submit({.prompt = prompt(20), .options = greedy(2), .principal = "bob", .name = "two"}, {{}, on_end}));
  const auto list = service->requests();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "one");
  EXPECT_EQ(list[0].principal, "ann");
  EXPECT_EQ(list[0].state, State::kGenerating);
  EXPECT_EQ(list[0].prompt_tokens, 300);
  EXPECT_EQ(list[0].computed_tokens, 300);
  EXPECT_EQ(list[0].completion_tokens, 1);
  EXPECT_EQ(list[0].kv_retained, 1);
  EXPECT_EQ(list[0].kv_bytes, service->stats().kv_bytes_in_use);
  EXPECT_EQ(list[1].name, "two");
  EXPECT_EQ(list[1].state, State::kWaiting);
  EXPECT_EQ(list[1].prompt_tokens, 20);
  EXPECT_EQ(list[1].kv_bytes, 0u);
  EXPECT_EQ(service->stats().tokens_read, 300u);
  EXPECT_EQ(service->stats().tokens_sampled, 1u);
  EXPECT_EQ(service->stats().prefix_bytes, service->stats().prefix_blocks * 64 * engine.info().kv_bytes_per_token);
  EXPECT_GT(service->stats().prefix_bytes, 0u);
  seen.count_down();
  over.wait();
  EXPECT_TRUE(service->requests().empty());
  EXPECT_EQ(service->stats().tokens_read, 320u);
  EXPECT_EQ(service->stats().tokens_sampled, 7u);
}

std::vector<RequestStatus> progress_of(Service& service, int tokens) {
  std::vector<RequestStatus> list;
  std::promise<void> over;
  bool spoke = false;
  EXPECT_TRUE(service.submit({.prompt = prompt(300), .options = greedy(tokens), .principal = {}},
                             {[&](const Piece&) { spoke = true; }, [&](const ServiceAnswer&) { over.set_value(); },
                              [&](const RequestStatus& status) {
                                EXPECT_EQ(spoke, status.completion_tokens > 1);  // told before the token is
                                list.push_back(status);
                              }}));
  over.get_future().wait();
  return list;
}

TEST(RequestStatus, TellsOfTheReadingOfAPromptAndOfMemory) {
  const Engine engine = open(small_engine());
  auto service = value_of(Service::start(engine, {}));
  const auto cold = progress_of(*service, 100);
  ASSERT_GE(cold.size(), 6u);  // pieces of 64 tokens at most, then memory for 99 more tokens
  for (size_t i = 1; i < cold.size(); ++i) {
    EXPECT_GE(cold[i].computed_tokens, cold[i - 1].computed_tokens);
    EXPECT_GE(cold[i].kv_bytes, cold[i - 1].kv_bytes);
  }
  EXPECT_LE(cold.front().computed_tokens, 64);
  EXPECT_EQ(cold.front().state, State::kReading);
  EXPECT_EQ(cold.back().computed_tokens, 300);
  EXPECT_EQ(cold.back().state, State::kGenerating);
  EXPECT_GT(cold.back().completion_tokens, 1);
  EXPECT_LT(cold.size(), 20u);  // not for every token
  const auto warm = progress_of(*service, 1);
  ASSERT_FALSE(warm.empty());
  EXPECT_EQ(warm.front().cached_tokens, 256);  // whole pages of the 299 tokens before the last
  EXPECT_EQ(warm.back().computed_tokens, 300);
}

}  // namespace
}  // namespace godwit
