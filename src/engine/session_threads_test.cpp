// Sessions on several threads at once: each result is the one it has alone. Meant for the thread sanitizer, too.
#include <thread>

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

TEST(SessionThreads, ResultsAreThoseOfOneSessionAlone) {
  EngineOptions options = options_for("qwen3");
  options.prefill_chunk = 16;
  const Engine engine = open(options);
  constexpr size_t kThreads = 4;
  std::vector<std::vector<TokenId>> want(kThreads), got(kThreads);
  for (size_t i = 0; i < kThreads; ++i) want[i] = cold(engine, prompt(40 + 17 * i, static_cast<uint32_t>(i)), 12);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto tokens = prompt(40 + 17 * i, static_cast<uint32_t>(i));
      Session session = engine.start();
      ASSERT_TRUE(session.append(std::span(tokens).first(30)).has_value());
      ASSERT_TRUE(session.prefill().has_value());
      Session fork = session.fork();
      session = engine.start();  // the first one dies while others compute
      ASSERT_TRUE(fork.append(std::span(tokens).subspan(30)).has_value());
      auto first = fork.generate(greedy(5));
      fork.truncate(tokens.size());
      auto generation = fork.generate(greedy(12));
      ASSERT_TRUE(generation.has_value());
      got[i] = generation->tokens;
      EXPECT_GT(engine.info().kv_bytes_in_use, 0U);
      EXPECT_FALSE(value_of(engine.tokenize("some text")).empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) EXPECT_EQ(got[i], want[i]) << "thread " << i;
  EXPECT_EQ(engine.info().kv_bytes_in_use, 0U);
}

}  // namespace
}  // namespace godwit
