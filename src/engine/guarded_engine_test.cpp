// The engine on the guarded back-end, whose memory only its own operations can touch: whatever a session does, it does
// through operations, and the results are those of the plain back-end.
#include <gtest/gtest.h>

#include "engine/open.h"
#include "engine/test_engine.h"
#include "kv/codec.h"
#include "kv/codec_tables_testing.h"

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
  for (const KvCodecRow* codec : all_kv_codecs()) {
    std::string name(codec->info.name);
    if (name == "kivi" || name == "gear") name += ":k=4,v=4";  // their 2 bits want heads of 64
    if (name == "kvtuner") name += ":bits=84-44";              // of the model's two layers
    if (name == "million") {
      const std::string path = testing::TempDir() + "guarded_million.gguf";
      std::vector<float> book(size_t{2} * 32 * 256);
      for (size_t i = 0; i < book.size(); ++i) book[i] = std::sin(static_cast<float>(i));
      ASSERT_TRUE(write_codec_tables("million", "a test", {{"width", 2}},
                                     {{"k", {2, 32, 256}, book}, {"v", {2, 32, 256}, book}}, path));
      name += ":file=" + path;
    }
    if (name == "xquant") {
      const std::string path = testing::TempDir() + "guarded_xquant.gguf";
      ASSERT_TRUE(write_xquant_file({.heads = 2, .head_dim = 32, .rotary_dim = 32}, path));
      name += ":file=" + path;
    }
    expect_same_walk("qwen3", name);
  }
}

TEST(GuardedEngine, WalksLikeThePlainOneFromGguf) {
  for (const char* model : {"gemma2.gguf", "mixtral.gguf"}) expect_same_walk(model, "f16");
}

}  // namespace
}  // namespace godwit
