// The engine on the guarded back-end, whose memory only its own operations can touch: whatever a session does, it does
// through operations, and the results are those of the plain back-end.
#include <gtest/gtest.h>

#include "engine/open.h"
#include "engine/test_codecs.h"

namespace godwit {
namespace {

using namespace engine_test;

// What sessions go through, and all that comes of it.
struct Outcome {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<float> logprobs;
  bool operator==(const Outcome&) const = default;
};

Outcome walk(const Engine& engine) {
  Outcome outcome;
  const auto start = prompt(150), left = prompt(10, 7), right = prompt(70, 8);
  auto generate = [&](Session& session, const GenerateOptions& options) {
    outcome.tokens.push_back(value_of(session.generate(options)).tokens);
  };
  auto score = [&](Session& session, std::span<const TokenId> tokens) {
    for (const TokenScore& each : value_of(session.score(tokens))) outcome.logprobs.push_back(each.logprob);
  };
  Session session = engine.start();
  append(session, start);
  EXPECT_TRUE(session.prefill().has_value());
  Session fork = session.fork();  // both write into the page that they share
  append(session, left);
  generate(session, greedy(8));
  append(fork, right);
  generate(fork, greedy(8));
  session.truncate(100);  // in the middle of a page
  generate(session, greedy(4));
  session.truncate(128);
  score(session, right);
  GenerateOptions sampled = greedy(8);
  sampled.sampling.temperature = 1;
  sampled.sampling.seed = 3;
  generate(session, sampled);
  fork = engine.start();  // pages are freed and used again
  score(fork, start);
  generate(fork, greedy(4));
  return outcome;
}

void expect_same_walk(std::string_view model, std::string_view codec) {
  SCOPED_TRACE(fmt::format("{} {}", model, codec));
  EngineOptions options = options_for(model);
  options.prefill_chunk = 64;
  options.kv_codec = codec;
  options.kv_budget_bytes = 4 << 20;
  options.context_tokens = 512;
  auto backend = value_of(make_guarded_backend({.threads = 2, .simd = {}}));
  const Engine guarded = value_of(open_engine(options, std::move(backend)));
  EXPECT_NE(guarded.info().backend.find("guarded"), std::string::npos);
  EXPECT_TRUE(walk(guarded) == walk(open(options)));
}

TEST(GuardedEngine, WalksLikeThePlainOneWithEveryCodec) {
  for (const std::string& codec : every_codec()) expect_same_walk("qwen3", codec);
}

TEST(GuardedEngine, WalksLikeThePlainOneFromGguf) {
  for (const char* model : {"gemma2.gguf", "mixtral.gguf"}) expect_same_walk(model, "f16");
}

}  // namespace
}  // namespace godwit
