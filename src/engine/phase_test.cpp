// A token is computed as it came: appended ones in the prefill phase, sampled ones in the decode phase, whenever that
// happens. Where the phases round differently (quantized weights), this is what keeps a session's bits its own.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/random_model.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer answer(Session& session, int count) {
  GenerateOptions options = greedy(count);
  options.sampling.logprobs = 1;
  Answer out;
  value_of(session.generate(options, [&](const Piece& piece) {
    if (static_cast<int>(out.tokens.size()) < count) {  // held back text comes as one more piece
      out.tokens.push_back(piece.id);
      out.logprobs.push_back(piece.logprob);
    }
    return true;
  }));
  return out;
}

Answer joined(Answer a, const Answer& b) {
  a.tokens.insert(a.tokens.end(), b.tokens.begin(), b.tokens.end());
  a.logprobs.insert(a.logprobs.end(), b.logprobs.begin(), b.logprobs.end());
  return a;
}

class Phases : public testing::TestWithParam<DType> {
 protected:
  Phases() {
    ConvertOptions options;
    options.dtype = GetParam();
    value_of(write_random_model(value_of(find_shape("llama-tiny")), 1, options, path()));
  }
  std::filesystem::path path() const { return folder_.path() / "model.gguf"; }
  Engine open_with(int chunk, int threads) const {
    EngineOptions options;
    options.model = path().string();
    options.prefill_chunk = chunk;
    options.threads = threads;
    return open(options);
  }
  io_test::TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Types, Phases, testing::Values(DType::kQ4_0, DType::kQ8_0, DType::kBF16));

TEST_P(Phases, AnAnswerInPiecesIsTheSameAnswer) {
  const auto question = prompt(40), more = prompt(9, 5);
  const Engine engine = open_with(512, 2), other = open_with(7, 1);
  Session whole = engine.start();
  append(whole, question);
  const Answer first = answer(whole, 10);
  append(whole, more);
  const Answer second = answer(whole, 6);

  Session pieces = other.start();
  append(pieces, question);
  Answer again = answer(pieces, 3);
  again = joined(again, answer(pieces, 1));
  Session fork = pieces.fork();
  for (Session* session : {&pieces, &fork}) {
    const Answer rest = answer(*session, 6);
    EXPECT_EQ(joined(again, rest), first);
    if (session == &fork) {
      ASSERT_TRUE(session->prefill().has_value());
    }  // the last sampled token, by itself
    append(*session, std::span(more).first(4));
    if (session == &fork) {
      ASSERT_TRUE(session->prefill().has_value());
    }
    append(*session, std::span(more).subspan(4));
    EXPECT_EQ(answer(*session, 6), second);
  }
}

TEST_P(Phases, TruncatedInsideAnAnswerItGoesOnAlike) {
  const auto question = prompt(40);
  const Engine engine = open_with(16, 2);
  Session session = engine.start();
  append(session, question);
  const Answer all = answer(session, 12);
  for (size_t kept : {11, 5, 1, 0}) {
    session.truncate(question.size() + kept);
    const Answer rest = answer(session, static_cast<int>(12 - kept));
    EXPECT_TRUE(
        std::equal(rest.logprobs.begin(), rest.logprobs.end(), all.logprobs.begin() + static_cast<ptrdiff_t>(kept)))
        << kept;
  }
}

// What an answer's tokens get as a prompt differs by rounding alone.
TEST_P(Phases, AnAnswerReadAsAPromptIsScoredAlike) {
  const auto question = prompt(40);
  const Engine engine = open_with(512, 2);
  Session session = engine.start(), reader = engine.start();
  append(session, question);
  append(reader, question);
  const Answer said = answer(session, 30);
  const auto read = value_of(reader.score(said.tokens));
  for (size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i].logprob, said.logprobs[i], 0.2F) << i;
}

// The built-in model's answers, with 8 bits, against fp32: how far its log-probabilities are off, and how often fp32
// would have said the same.
TEST(BuiltInModel, AnswersWith8BitsAsInFp32) {
  EngineOptions exact;
  exact.threads = 2;
  EngineOptions usual = exact;
  exact.simd = cpu_fp32_target();
  exact.kv_codec = "f32";
  const Engine judge_engine = open(exact), engine = open(usual);
  double worst = 0, sum = 0;
  size_t agreed = 0, count = 0;
  for (const char* text : {"Once upon a time", "The history of the city begins", "She opened the letter and"}) {
    Session session = engine.start(), judge = judge_engine.start();
    ASSERT_TRUE(session.append_text(text).has_value());
    ASSERT_TRUE(judge.append_text(text).has_value());
    const Answer said = answer(session, 100);
    const auto scores = value_of(judge.score(said.tokens));
    for (size_t i = 0; i < scores.size(); ++i, ++count) {
      const double off = std::fabs(static_cast<double>(scores[i].logprob) - static_cast<double>(said.logprobs[i]));
      worst = std::max(worst, off);
      sum += off;
      agreed += scores[i].is_top ? 1 : 0;
    }
  }
  // Measured: 0.068, 0.015 and 297 of 300.
  EXPECT_LT(worst, 0.2);
  EXPECT_LT(sum / static_cast<double>(count), 0.03);
  EXPECT_GE(agreed * 100, count * 97);
}

}  // namespace
}  // namespace godwit
