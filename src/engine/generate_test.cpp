// How a generation ends, and what it hands out on the way.
#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

class Generate : public testing::Test {
 protected:
  Session fresh(size_t count = 20) {
    Session session = engine_.start();
    append(session, prompt(count));
    return session;
  }
  // Tokens that spell the text, to be forced one after another.
  static GenerateOptions forcing(TokenId id, int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.logit_bias = {{id, 1e6F}};
    return options;
  }
  TokenId token_of(std::string_view text) {
    const auto tokens = value_of(engine_.tokenize(text, {.add_bos = false}));
    EXPECT_EQ(tokens.size(), 1U) << text;
    return tokens[0];
  }

  Engine engine_ = open();
  const TokenId end_ = engine_.end_tokens()[0];
};

TEST_F(Generate, NothingIsAskedFor) {
  Session session = fresh();
  const Generation generation = value_of(session.generate(greedy(0), [](const Piece&) {
    ADD_FAILURE() << "a piece of nothing";
    return true;
  }));
  EXPECT_EQ(generation.finish, FinishReason::kLength);
  EXPECT_TRUE(generation.tokens.empty());
  EXPECT_TRUE(generation.text.empty());
  EXPECT_EQ(generation.prompt_tokens, 20);
  EXPECT_GT(session.kv_bytes(), 0U);
}

TEST_F(Generate, EndTokenEnds) {
  EXPECT_EQ(end_, 319);
  Session session = fresh();
  std::vector<TokenId> seen;
  const Generation generation = value_of(session.generate(forcing(end_, 9), [&](const Piece& piece) {
    seen.push_back(piece.id);
    EXPECT_TRUE(piece.text.empty());
    return true;
  }));
  EXPECT_EQ(generation.finish, FinishReason::kStop);
  EXPECT_EQ(generation.tokens, std::vector<TokenId>{end_});
  EXPECT_EQ(seen, std::vector<TokenId>{end_});
  EXPECT_TRUE(generation.text.empty());
  EXPECT_EQ(session.tokens().back(), end_);
}

TEST_F(Generate, TheTemplatesEndOfTurnEndsToo) {
  const Engine engine = open("phi3.gguf");
  Session session = engine.start();
  const ChatMessage message{"user", "hi"};
  append(session, value_of(engine.chat_tokens({&message, 1})));
  const Generation generation = value_of(session.generate(forcing(351, 4)));  // <|im_end|>
  EXPECT_EQ(generation.finish, FinishReason::kStop);
  EXPECT_EQ(generation.tokens, std::vector<TokenId>{351});
}

TEST_F(Generate, EndTokenIsIgnored) {
  Session session = fresh();
  GenerateOptions options = forcing(end_, 4);
  options.ignore_eos = true;
  const Generation generation = value_of(session.generate(options));
  EXPECT_EQ(generation.finish, FinishReason::kLength);
  EXPECT_EQ(generation.tokens, std::vector<TokenId>(4, end_));
}

TEST_F(Generate, EndTokenHasToWait) {
  Session session = fresh();
  GenerateOptions options = forcing(end_, 9);
  options.sampling.min_tokens = 3;
  const Generation generation = value_of(session.generate(options));
  EXPECT_EQ(generation.finish, FinishReason::kStop);
  ASSERT_EQ(generation.tokens.size(), 4U);
  EXPECT_EQ(generation.tokens[3], end_);
  EXPECT_NE(generation.tokens[2], end_);
}

TEST_F(Generate, StopTokensEnd) {
  const TokenId stop = token_of("a");
  Session session = fresh();
  GenerateOptions options = forcing(stop, 9);
  options.stop_tokens = {stop};
  options.ignore_eos = true;
  const Generation generation = value_of(session.generate(options));
  EXPECT_EQ(generation.finish, FinishReason::kStop);
  EXPECT_EQ(generation.tokens, std::vector<TokenId>{stop});
  EXPECT_TRUE(generation.text.empty());
}

TEST_F(Generate, StopStringsCutTheText) {
  Session session = fresh();
  GenerateOptions options = forcing(token_of("a"), 9);
  options.stop = {"xyz", "aaa"};
  std::string streamed;
  const Generation generation = value_of(session.generate(options, [&](const Piece& piece) {
    streamed += piece.text;
    return true;
  }));
  EXPECT_EQ(generation.finish, FinishReason::kStop);
  EXPECT_EQ(generation.tokens.size(), 3U);
  EXPECT_EQ(generation.text, "");
  EXPECT_EQ(streamed, "");
  // What only looked like a stop comes out in the end.
  Session other = fresh();
  options.stop = {"aaaaX"};
  options.max_tokens = 3;
  streamed.clear();
  const Generation rest = value_of(other.generate(options, [&](const Piece& piece) {
    streamed += piece.text;
    return true;
  }));
  EXPECT_EQ(rest.finish, FinishReason::kLength);
  EXPECT_EQ(rest.text, "aaa");
  EXPECT_EQ(streamed, "aaa");
}

TEST_F(Generate, NobodyIsAskedAgainAfterSayingNo) {
  Session session = fresh();
  GenerateOptions options = forcing(token_of("a"), 9);
  options.stop = {"aaaaX"};  // so that text is held back
  int calls = 0;
  const Generation generation = value_of(session.generate(options, [&](const Piece&) { return ++calls < 2; }));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(generation.finish, FinishReason::kCancelled);
  EXPECT_EQ(generation.tokens.size(), 2U);
  EXPECT_EQ(generation.text, "aa");
}

TEST_F(Generate, PiecesMakeUpTheText) {
  Session session = fresh();
  GenerateOptions options = greedy(60);
  options.sampling.temperature = 3;
  std::string streamed;
  const Generation generation = value_of(session.generate(options, [&](const Piece& piece) {
    streamed += piece.text;
    return true;
  }));
  EXPECT_EQ(streamed, generation.text);
  EXPECT_EQ(generation.tokens.size(), 60U);
}

TEST_F(Generate, TheSameSeedGivesTheSameTokens) {
  GenerateOptions options = greedy(20);
  options.sampling.temperature = 2;
  auto sampled = [&](uint64_t seed) {
    options.sampling.seed = seed;
    return value_of(fresh().generate(options)).tokens;
  };
  EXPECT_EQ(sampled(1), sampled(1));
  EXPECT_NE(sampled(1), sampled(2));
}

TEST_F(Generate, RefusesWhatMakesNoSense) {
  Session empty = engine_.start();
  expect_error(empty.generate(greedy(1)), ErrorCode::kInvalidArgument, "nothing to continue");
  Session session = fresh();
  auto refused = [&](auto change, std::string_view mention) {
    GenerateOptions options = greedy(3);
    change(options);
    expect_error(session.generate(options), ErrorCode::kInvalidArgument, mention);
  };
  refused([](auto& o) { o.sampling.temperature = -1; }, "temperature");
  refused([](auto& o) { o.sampling.top_p = 2; }, "top_p");
  refused([](auto& o) { o.sampling.logit_bias = {{320, 1.0F}}; }, "320");
  refused([](auto& o) { o.sampling.end_tokens = {-5}; }, "-5");
  refused([](auto& o) { o.stop = {""}; }, "stop");
  EXPECT_EQ(session.tokens().size(), 20U);
}

}  // namespace
}  // namespace godwit
