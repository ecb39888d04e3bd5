// Whatever a session has been through (cuts into chunks, cancellations, forks, truncations, full memory), it continues
// as a fresh one with the same tokens would.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

// Pages of 64 tokens that hold the same tokens in all layers and heads: what a KV budget is counted in.
uint64_t column_bytes(const Engine& engine) {
  return static_cast<uint64_t>(engine.info().kv_bytes_per_token * 64);
}

TEST(Session, AppendPrefillGenerate) {
  const Engine engine = open();
  Session session = engine.start();
  EXPECT_TRUE(session.tokens().empty());
  EXPECT_EQ(session.kv_bytes(), 0U);
  const auto tokens = prompt(100);
  append(session, std::span(tokens).first(30));
  append(session, std::span(tokens).subspan(30));
  EXPECT_EQ(copy_of(session.tokens()), tokens);
  EXPECT_EQ(session.kv_bytes(), 0U) << "append() computes nothing";
  ASSERT_TRUE(session.prefill().has_value());
  EXPECT_EQ(session.kv_bytes(), 2 * column_bytes(engine));
  const Generation generation = value_of(session.generate(greedy(5)));
  EXPECT_EQ(generation.prompt_tokens, 0);
  EXPECT_EQ(generation.finish, FinishReason::kLength);
  EXPECT_EQ(generation.tokens, cold(engine, tokens, 5));
  EXPECT_EQ(copy_of(session.tokens()), joined(tokens, generation.tokens));
  // Going on after an end is the same as not having stopped.
  const Generation more = value_of(session.generate(greedy(5)));
  EXPECT_EQ(more.prompt_tokens, 1);
  EXPECT_EQ(joined(generation.tokens, more.tokens), cold(engine, tokens, 10));
}

TEST(Session, ChunksAndThreadsDoNotChangeTheResult) {
  const auto tokens = prompt(150);
  const auto want = cold(open(), tokens, 20);
  for (int chunk : {1, 7, 64, 149, 150}) {
    EngineOptions options = options_for("qwen3");
    options.prefill_chunk = chunk;
    options.threads = chunk % 2 + 1;
    EXPECT_EQ(cold(open(options), tokens, 20), want) << "chunk " << chunk;
  }
}

TEST(Session, ProgressCountsThePrompt) {
  EngineOptions options = options_for("qwen3");
  options.prefill_chunk = 40;
  Session session = open(options).start();
  append(session, prompt(100));
  std::vector<int64_t> done;
  ASSERT_TRUE(session
                  .prefill([&](const Progress& progress) {
                    EXPECT_EQ(progress.total, 100);
                    done.push_back(progress.done);
                  })
                  .has_value());
  EXPECT_EQ(done, (std::vector<int64_t>{40, 80, 100}));
}

TEST(Session, CancelledPrefillGoesOnWhereItStopped) {
  EngineOptions options = options_for("qwen3");
  options.prefill_chunk = 16;
  const Engine engine = open(options);
  const auto tokens = prompt(100);
  Session session = engine.start();
  append(session, tokens);
  std::stop_source source;
  auto status = session.prefill(
      [&](const Progress& p) {
        if (p.done >= 32) source.request_stop();
      },
      source.get_token());
  expect_error(status, ErrorCode::kCancelled, "32 of 100");
  EXPECT_EQ(copy_of(session.tokens()), tokens);
  const Generation generation = value_of(session.generate(greedy(12)));
  EXPECT_EQ(generation.prompt_tokens, 68);
  EXPECT_EQ(generation.tokens, cold(engine, tokens, 12));
}

TEST(Session, CancelledGenerationGoesOnWhereItStopped) {
  const Engine engine = open();
  const auto tokens = prompt(40);
  Session session = engine.start();
  append(session, tokens);
  std::stop_source source;
  int pieces = 0;
  const Generation first = value_of(session.generate(
      greedy(12),
      [&](const Piece&) {
        if (++pieces == 4) source.request_stop();
        return true;
      },
      {}, source.get_token()));
  EXPECT_EQ(first.finish, FinishReason::kCancelled);
  ASSERT_EQ(first.tokens.size(), 4U);
  EXPECT_EQ(joined(first.tokens, value_of(session.generate(greedy(8))).tokens), cold(engine, tokens, 12));
  // Cancelled before it began: the prompt is still to be computed.
  Session late = engine.start();
  append(late, tokens);
  expect_error(late.generate(greedy(3), {}, {}, source.get_token()), ErrorCode::kCancelled, "0 of 40");
  EXPECT_EQ(value_of(late.generate(greedy(3))).tokens, cold(engine, tokens, 3));
}

TEST(Session, FullContextChangesNothing) {
  EngineOptions options = options_for("qwen3");
  options.context_tokens = 70;
  const Engine engine = open(options);
  Session session = engine.start();
  const auto tokens = prompt(66);
  append(session, tokens);
  expect_error(session.append(prompt(5)), ErrorCode::kExhausted, "the context holds 70, of which 66 are in use");
  expect_error(session.score(prompt(5)), ErrorCode::kExhausted, "the context holds 70");
  EXPECT_EQ(copy_of(session.tokens()), tokens);
  const Generation rest = value_of(session.generate(greedy(-1)));
  EXPECT_EQ(rest.tokens.size(), 4U);
  EXPECT_EQ(rest.finish, FinishReason::kContextFull);
  const Generation nothing = value_of(session.generate(greedy(-1)));
  EXPECT_EQ(nothing.tokens.size(), 0U);
  EXPECT_EQ(nothing.finish, FinishReason::kContextFull);
  session.truncate(66);
  const Generation again = value_of(session.generate(greedy(4)));
  EXPECT_EQ(again.tokens, rest.tokens);
  EXPECT_EQ(again.finish, FinishReason::kLength) << "as many as were asked for";
}

TEST(Session, AppendedTextGoesOnWhereTheSessionEnds) {
  for (const char* model : {"llama", "mistral", "gemma2", "qwen3"}) {
    const Engine engine = open(model);
    Session session = engine.start();
    for (const char* text : {"Once", " upon", "a", "\ntime"}) ASSERT_TRUE(session.append_text(text).has_value());
    EXPECT_EQ(engine.detokenize(session.tokens()), "Once upona\ntime") << model;
  }
}

TEST(Session, AppendedTextIsNotEnded) {
  ModelCopy copy("llama");
  copy.patch("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true})");
  EngineOptions options;
  options.model = copy.path().string();
  const Engine engine = open(options), plain = open("llama");
  Session session = engine.start();
  ASSERT_TRUE(session.append_text("Once upon").has_value());
  EXPECT_EQ(copy_of(session.tokens()), value_of(plain.tokenize("Once upon")));
  EXPECT_EQ(value_of(engine.tokenize("Once upon")), value_of(plain.tokenize("Once upon")));
  ASSERT_TRUE(session.append_text(" a time").has_value());
  for (TokenId end : engine.end_tokens())
    EXPECT_EQ(std::count(session.tokens().begin(), session.tokens().end(), end), 0) << end;
}

TEST(Session, FullMemoryIsAnErrorUntilAnotherSessionDies) {
  EngineOptions options = options_for("qwen3");
  options.context_tokens = 128;
  options.prefill_chunk = 32;
  options.kv_budget_bytes = 3 * column_bytes(open());
  const Engine engine = open(options);
  const auto first = prompt(128, 1), second = prompt(120, 2);
  Session session = engine.start();
  append(session, second);
  {
    Session other = engine.start();
    append(other, first);
    ASSERT_TRUE(other.prefill().has_value());
    expect_error(session.prefill(), ErrorCode::kExhausted, "KV memory is full");
    expect_error(session.generate(greedy(2)), ErrorCode::kExhausted, "KV memory is full");
    EXPECT_EQ(copy_of(session.tokens()), second);
    EXPECT_EQ(session.kv_bytes(), column_bytes(engine));
    EXPECT_EQ(engine.info().kv_bytes_in_use, 3 * column_bytes(engine));
  }
  EXPECT_EQ(value_of(session.generate(greedy(6))).tokens, cold(open(), second, 6));
  EXPECT_LE(engine.info().kv_bytes_peak, options.kv_budget_bytes);
}

TEST(Session, AnAnswerThatFillsTheMemoryIsKept) {
  EngineOptions options = options_for("qwen3");
  options.context_tokens = 128;
  options.kv_budget_bytes = 2 * column_bytes(open());
  const Engine engine = open(options);
  const auto tokens = prompt(60);
  Session session = engine.start();
  append(session, tokens);
  Generation first;
  {
    Session other = engine.start();
    append(other, prompt(10, 2));
    ASSERT_TRUE(other.prefill().has_value());
    std::string streamed;
    first = value_of(session.generate(greedy(20), [&](const Piece& piece) {
      streamed += piece.text;
      return true;
    }));
    EXPECT_EQ(first.finish, FinishReason::kKvExhausted);
    EXPECT_EQ(first.tokens, cold(open(), tokens, 5));  // four fill the page, the fifth needs no room yet
    EXPECT_EQ(first.text, streamed);
    EXPECT_EQ(copy_of(session.tokens()), joined(tokens, first.tokens));
    expect_error(session.generate(greedy(1)), ErrorCode::kExhausted, "KV memory is full");
  }
  const Generation rest = value_of(session.generate(greedy(20)));
  EXPECT_EQ(joined(first.tokens, rest.tokens), cold(open(), tokens, 25));
}

TEST(Session, ForksShareMemoryAndDiverge) {
  const Engine engine = open();
  const auto tokens = prompt(150), left = prompt(10, 7), right = prompt(70, 8);
  Session session = engine.start();
  append(session, tokens);
  ASSERT_TRUE(session.prefill().has_value());
  const uint64_t before = engine.info().kv_bytes_in_use;
  Session fork = session.fork();
  Session untouched = session.fork();
  EXPECT_EQ(engine.info().kv_bytes_in_use, before);
  EXPECT_EQ(fork.kv_bytes(), session.kv_bytes());
  append(session, left);
  append(fork, right);
  EXPECT_EQ(value_of(session.generate(greedy(8))).tokens, cold(engine, joined(tokens, left), 8));
  EXPECT_EQ(value_of(fork.generate(greedy(8))).tokens, cold(engine, joined(tokens, right), 8));
  EXPECT_LT(engine.info().kv_bytes_in_use, 3 * before);
  EXPECT_EQ(value_of(untouched.generate(greedy(8))).tokens, cold(engine, tokens, 8));
  // A fork of a session that has yet to compute its prompt, and one that outlives its parent and its engine.
  std::optional<Session> orphan;
  {
    const Engine brief = open();
    Session parent = brief.start();
    append(parent, tokens);
    orphan.emplace(parent.fork());
  }
  EXPECT_EQ(value_of(orphan->generate(greedy(8))).tokens, cold(engine, tokens, 8));
}

TEST(Session, TruncatedGoesOnLikeAFreshOne) {
  const Engine engine = open();
  const auto tokens = prompt(150);
  Session session = engine.start();
  append(session, tokens);
  value_of(session.generate(greedy(10)));
  for (size_t count : {150, 130, 128, 64, 63, 1}) {
    session.truncate(count);
    EXPECT_EQ(copy_of(session.tokens()), copy_of(std::span(tokens).first(count)));
    EXPECT_EQ(value_of(session.generate(greedy(6))).tokens, cold(engine, std::span(tokens).first(count), 6)) << count;
    session.truncate(count);
  }
  session.truncate(1000);
  EXPECT_EQ(session.tokens().size(), 1U);
  session.truncate(0);
  EXPECT_EQ(session.kv_bytes(), 0U);
  expect_error(session.generate(greedy(1)), ErrorCode::kInvalidArgument, "nothing to continue");
  append(session, tokens);
  EXPECT_EQ(value_of(session.generate(greedy(6))).tokens, cold(engine, tokens, 6));
  // Of what waits to be computed, too.
  append(session, prompt(20, 3));
  session.truncate(156);
  EXPECT_EQ(joined(cold(engine, tokens, 6), value_of(session.generate(greedy(3))).tokens), cold(engine, tokens, 9));
}

TEST(Session, RefusesTokensThatAreNone) {
  Session session = open().start();
  for (TokenId bad : {-1, 320, INT32_MAX, INT32_MIN}) {
    const TokenId tokens[] = {5, bad};
    expect_error(session.append(tokens), ErrorCode::kInvalidArgument, "not in the vocabulary of 320");
    expect_error(session.score(tokens), ErrorCode::kInvalidArgument, "not in the vocabulary of 320");
  }
  EXPECT_TRUE(session.tokens().empty());
}

TEST(Session, TextGetsBosOnlyAtTheStart) {
  const Engine engine = open("llama");
  Session session = engine.start();
  ASSERT_TRUE(session.append_text("hello").has_value());
  ASSERT_EQ(session.tokens()[0], 1);
  const size_t count = session.tokens().size();
  ASSERT_TRUE(session.append_text("hello").has_value());
  EXPECT_NE(session.tokens()[count], 1);
  ASSERT_TRUE(session.append_text("").has_value());
}

}  // namespace
}  // namespace godwit
