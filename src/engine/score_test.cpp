// Scores against transformers' logits, against sampling, and against themselves cut into other pieces.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

template <class T>
std::vector<T> golden(const Safetensors& file, const std::string& name) {
  const TensorEntry* entry = value_of(file.find(name));
  std::vector<T> values(entry->bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  return values;
}

TEST(Score, IsTheLogSoftmaxOfTransformersLogits) {
  const Safetensors file = value_of(Safetensors::open(model_path("qwen3") / "golden.safetensors"));
  const auto tokens = golden<int32_t>(file, "main.prompt"), positions = golden<int32_t>(file, "main.positions");
  const auto logits = golden<float>(file, "main.logits");
  EngineOptions options = options_for("qwen3");
  options.kv_codec = "f32";
  options.simd = cpu_fp32_target();
  Session session = open(options).start();
  const auto scores = value_of(session.score(tokens));
  ASSERT_EQ(scores.size(), tokens.size());
  EXPECT_EQ(scores[0].logprob, 0.0F);
  EXPECT_FALSE(scores[0].is_top);
  int compared = 0;
  for (size_t p = 0; p + 1 < positions.size(); ++p) {
    const auto position = static_cast<size_t>(positions[p]);
    const std::span<const float> row = std::span(logits).subspan(p * 320, 320);
    const double top = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (float logit : row) sum += std::exp(logit - top);
    const float own = row[static_cast<size_t>(tokens[position + 1])];
    EXPECT_NEAR(scores[position + 1].logprob, own - top - std::log(sum), 2e-3) << position;
    EXPECT_EQ(scores[position + 1].is_top, own == static_cast<float>(top)) << position;
    ++compared;
  }
  EXPECT_GE(compared, 7);
}

void expect_equal(std::span<const TokenScore> got, std::span<const TokenScore> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].logprob, want[i].logprob) << i;
    EXPECT_EQ(got[i].is_top, want[i].is_top) << i;
  }
}

TEST(Score, DoesNotDependOnChunksOrCalls) {
  const auto tokens = prompt(200);
  Session whole = open().start();
  const auto want = value_of(whole.score(tokens));
  for (int chunk : {1, 5, 63, 65, 128}) {
    EngineOptions options = options_for("qwen3");
    options.prefill_chunk = chunk;
    Session session = open(options).start();
    expect_equal(value_of(session.score(tokens)), want);
  }
  const Engine engine = open();
  Session session = engine.start();
  std::vector<TokenScore> pieces;
  for (size_t begin = 0; begin < tokens.size(); begin += 37) {
    const auto part = std::span(tokens).subspan(begin, std::min<size_t>(37, tokens.size() - begin));
    const auto scores = value_of(session.score(part));
    pieces.insert(pieces.end(), scores.begin(), scores.end());
    EXPECT_TRUE(value_of(session.score({})).empty());
  }
  expect_equal(pieces, want);
  // With the beginning appended and not scored, and the session goes on as if nothing had happened.
  Session rest = engine.start();
  append(rest, std::span(tokens).first(90));
  expect_equal(value_of(rest.score(std::span(tokens).subspan(90))), std::span(want).subspan(90));
  EXPECT_EQ(value_of(rest.generate(greedy(5))).tokens, cold(engine, tokens, 5));
}

TEST(Score, EqualsWhatSamplingReports) {
  const Engine engine = open();
  const auto tokens = prompt(30);
  Session session = engine.start();
  append(session, tokens);
  GenerateOptions options = greedy(12);
  options.sampling.logprobs = 3;
  options.sampling.temperature = 1;
  options.sampling.seed = 5;
  std::vector<float> logprobs;
  std::vector<bool> is_top;
  const Generation generation = value_of(session.generate(options, [&](const Piece& piece) {
    EXPECT_EQ(piece.top.size(), 3U);
    EXPECT_GE(piece.top[0].logprob, piece.top[1].logprob);
    EXPECT_GE(piece.top[0].logprob, piece.logprob);
    logprobs.push_back(piece.logprob);
    is_top.push_back(piece.top[0].logprob == piece.logprob);
    return true;
  }));
  ASSERT_GE(logprobs.size(), 12U);  // text held back to the end comes as one more piece
  Session again = engine.start();
  append(again, tokens);
  const auto scores = value_of(again.score(generation.tokens));
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(scores[i].logprob, logprobs[i], 1e-5) << i;
    EXPECT_EQ(scores[i].is_top, is_top[i]) << i;
  }
}

// The last token is computed again to score what follows it; failing after that must not leave its logits behind.
TEST(Score, AFailureLeavesTheSessionSound) {
  EngineOptions options = options_for("qwen3");
  options.context_tokens = 64;
  const Engine engine = open(options);
  const auto tokens = prompt(60);
  Session session = engine.start();
  append(session, tokens);
  ASSERT_TRUE(session.prefill().has_value());
  expect_error(session.score(prompt(5)), ErrorCode::kExhausted, "context holds 64");
  session.truncate(59);
  EXPECT_EQ(value_of(session.generate(greedy(3))).tokens, cold(engine, std::span(tokens).first(59), 3));
  session.truncate(59);
  ASSERT_TRUE(session.prefill().has_value());
  std::stop_source source;
  source.request_stop();
  expect_error(session.score(prompt(2), {}, source.get_token()), ErrorCode::kCancelled, "stopped");
  session.truncate(58);
  EXPECT_EQ(value_of(session.generate(greedy(3))).tokens, cold(engine, std::span(tokens).first(58), 3));
}

}  // namespace
}  // namespace godwit
