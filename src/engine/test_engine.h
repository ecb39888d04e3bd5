// For tests: engines on tiny golden models and prompts for them.
#pragma once

#include <cmath>

#include "model/test_models.h"
#include <godwit/engine.h>

namespace godwit::engine_test {

using io_test::expect_error;
using model_test::model_path;
using model_test::ModelCopy;
using model_test::value_of;

inline EngineOptions options_for(std::string_view model) {
  EngineOptions options;
  options.model = model_path(model).string();
  options.threads = 2;
  return options;
}

inline Engine open(const EngineOptions& options) {
  return value_of(Engine::open(options));
}
inline Engine open(std::string_view model = "qwen3") {
  return open(options_for(model));
}

// Ordinary tokens of the qwen3 model that look like nothing in particular; the same for the same seed.
inline std::vector<TokenId> prompt(size_t count, uint32_t seed = 1) {
  std::vector<TokenId> tokens;
  while (tokens.size() < count) {
    seed = seed * 1664525 + 1013904223;
    tokens.push_back(static_cast<TokenId>(10 + (seed >> 8) % 300));
  }
  return tokens;
}

inline GenerateOptions greedy(int tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  options.ignore_eos = true;
  return options;
}

inline void append(Session& session, std::span<const TokenId> tokens) {
  auto status = session.append(tokens);
  ASSERT_TRUE(status.has_value()) << status.error().message;
}

// What a fresh session continues `tokens` with.
inline std::vector<TokenId> cold(const Engine& engine, std::span<const TokenId> tokens, int count) {
  Session session = engine.start();
  append(session, tokens);
  return value_of(session.generate(greedy(count))).tokens;
}

// The logits of every token of `rest`, after `first`.
inline std::vector<float> logits_of(const Engine& engine, std::span<const TokenId> first,
                                    std::span<const TokenId> rest) {
  Session session = engine.start();
  append(session, first);
  std::vector<float> all;
  Status status =
      session.read(rest, [&](std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); });
  EXPECT_TRUE(status.has_value()) << status.error().message;
  return all;
}

// The length of the difference, as a share of that of `want`.
inline double distance(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double square = 0, difference = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    square += double{want[i]} * want[i];
    difference += std::pow(double{got[i]} - want[i], 2);
  }
  return std::sqrt(difference / square);
}

inline std::vector<TokenId> copy_of(std::span<const TokenId> tokens) {
  return {tokens.begin(), tokens.end()};
}

inline std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::vector<TokenId> result = copy_of(a);
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

// A text that says little, a line for each day.
inline std::string journal(int days) {
  std::string text;
  for (int i = 0; i < days; ++i) text += fmt::format("It was day {} of the journey, and the wind blew on.\n\n", i);
  return text;
}

// A session that is cut off and goes on gives what a cold one gives, and a fork of it the same `tokens` tokens.
inline void expect_cold_after_rewinding(const Engine& engine, int tokens) {
  const auto start = prompt(300), more = prompt(50, 3);
  Session session = engine.start();
  append(session, start);
  ASSERT_EQ(value_of(session.generate(greedy(20))).tokens.size(), 20U);
  session.truncate(200);
  append(session, more);
  EXPECT_EQ(value_of(session.generate(greedy(10))).tokens, cold(engine, joined(std::span(start).first(200), more), 10));
  Session fork = session.fork();
  EXPECT_EQ(value_of(fork.generate(greedy(tokens))).tokens, value_of(session.generate(greedy(tokens))).tokens);
  EXPECT_EQ(fork.kv_bytes(), session.kv_bytes());
}

}  // namespace godwit::engine_test
