// Samples of recall: the same by seed, never longer than asked for, and with every fact in them.
#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "eval/facts.h"
#include "eval/recall_sample.h"

namespace godwit {
namespace {

using namespace engine_test;

// A book of sentences of different lengths.
std::string book() {
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += fmt::format("It was day {} of the journey", i);
    for (int word = 0; word < i % 7; ++word) text += " and on";
    text += i % 3 == 0 ? ".\n\n" : i % 3 == 1 ? "." : "!";
  }
  return text;
}

std::vector<RecallSample> samples(const Engine& engine, const RecallOptions& options) {
  auto maker =
      value_of(RecallSampleMaker::create(engine, value_of(engine.tokenize(book(), {.add_bos = false})), options));
  std::vector<RecallSample> result;
  for (int i = 0; i < options.samples; ++i) result.push_back(value_of(maker.make()));
  return result;
}

std::vector<TokenId> all_tokens(const RecallSample& sample) {
  std::vector<TokenId> tokens = sample.context;
  for (const RecallTurn& question : sample.questions) tokens = joined(joined(tokens, question.before), question.value);
  return tokens;
}

TEST(Recall, SamplesFollowTheSeed) {
  const Engine engine = open();
  RecallOptions options;
  options.length = 1500;
  options.samples = 3;
  options.facts = 4;
  const auto first = samples(engine, options), again = samples(engine, options);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(all_tokens(first[i]), all_tokens(again[i])) << i;
  EXPECT_NE(all_tokens(first[0]), all_tokens(first[1]));
  options.seed = 2;
  EXPECT_NE(all_tokens(first[0]), all_tokens(samples(engine, options)[0]));
}

TEST(Recall, NoSampleIsLongerThanAskedFor) {
  for (const char* model : {"qwen3", "llama"}) {  // one with a BOS, one without
    const Engine engine = open(model);
    for (std::string_view kind : RecallSampleMaker::kinds()) {
      for (int length : {1500, 1777, 2048, 6000}) {
        RecallOptions options;
        options.kinds = {std::string(kind)};
        options.length = length;
        options.samples = 5;
        options.questions = 3;
        options.facts = 3;
        options.seed = static_cast<uint64_t>(length);
        for (const RecallSample& sample : samples(engine, options)) {
          EXPECT_LE(all_tokens(sample).size(), static_cast<size_t>(length)) << model << " " << kind;
          EXPECT_GE(all_tokens(sample).size(), static_cast<size_t>(length) - 80) << model << " " << kind;
          EXPECT_EQ(sample.questions.size(), 3U);
        }
      }
    }
  }
}

TEST(Recall, EveryQuestionHasItsAnswerInTheText) {
  const Engine engine = open();
  for (std::string_view kind : {"number", "hex", "lives", "keeps", "shots"}) {
    RecallOptions options;
    options.kinds = {std::string(kind)};
    options.length = 3000;
    options.facts = 8;
    options.questions = 5;
    options.samples = 2;
    for (const RecallSample& sample : samples(engine, options)) {
      const std::string text = engine.detokenize(sample.context);
      ASSERT_EQ(sample.questions.size(), 5U);
      for (const RecallTurn& question : sample.questions) {
        const std::string before = engine.detokenize(question.before), value = engine.detokenize(question.value);
        const std::string lead = before.substr(before.rfind('\n') + 1);
        EXPECT_NE(text.find(lead + value), std::string::npos) << lead << value;
        if (kind == "shots") continue;
        const auto sentence = std::span(sample.context).subspan(question.begin, question.tokens);
        EXPECT_EQ(engine.detokenize(sentence), " " + lead + value) << "where it says";
      }
    }
  }
}

TEST(Recall, CountsWhatItAsks) {
  const Engine engine = open();
  RecallOptions options;
  options.length = 1500;
  options.samples = 2;
  options.facts = 3;
  options.questions = 2;
  std::vector<int> done;
  options.on_progress = [&](int now, int total) {
    EXPECT_EQ(total, 2);
    done.push_back(now);
  };
  const RecallResult result = value_of(measure_recall(engine, book(), options));
  EXPECT_EQ(result.asked, 4);
  EXPECT_LE(result.right, 4);
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  std::stop_source source;
  source.request_stop();
  expect_error(measure_recall(engine, book(), options, source.get_token()), ErrorCode::kCancelled, "stopped");
}

TEST(Recall, WithoutAPolicyItDoesNotMatterWhenTheQuestionComes) {
  const Engine engine = open();
  RecallOptions options;
  options.length = 1500;
  options.samples = 1;
  options.facts = options.questions = 5;
  options.question = RecallQuestion::kKnown;
  const RecallResult known = value_of(measure_recall(engine, book(), options));
  options.question = RecallQuestion::kLate;
  const RecallResult late = value_of(measure_recall(engine, book(), options));
  EXPECT_EQ(known.asked, 5);
  EXPECT_EQ(late.right, known.right);
  EXPECT_EQ(late.kv_bytes_per_token, known.kv_bytes_per_token);
  EXPECT_NEAR(late.kv_bytes_per_token, engine.info().kv_bytes_per_token, 64 * engine.info().kv_bytes_per_token / 1400);
}

TEST(Recall, APolicyLeavesWhatItsBudgetSays) {
  EngineOptions settings = options_for("qwen3");
  settings.kv_policy = "streaming";
  settings.kv_budget = "25%";
  const Engine engine = open(settings);
  RecallOptions options;
  options.length = 1500;
  options.samples = 1;
  options.facts = options.questions = 2;
  for (RecallQuestion question : {RecallQuestion::kKnown, RecallQuestion::kLate}) {
    options.question = question;
    const RecallResult result = value_of(measure_recall(engine, book(), options));
    EXPECT_EQ(result.asked, 2);
    EXPECT_GT(result.kv_bytes_per_token, 0.25 * engine.info().kv_bytes_per_token);
    EXPECT_LT(result.kv_bytes_per_token, 0.35 * engine.info().kv_bytes_per_token);
  }
}

TEST(Recall, RefusesWhatMakesNoSense) {
  const Engine engine = open();
  auto refused = [&](auto change, std::string_view mention) {
    RecallOptions options;
    options.length = 1500;
    change(options);
    expect_error(measure_recall(engine, book(), options), ErrorCode::kInvalidArgument, mention);
  };
  refused([](auto& o) { o.kinds = {"rumour"}; }, "there are number, hex, lives, keeps, multi, chain, sum, shots");
  refused([](auto& o) { o.length = 0; }, "0 tokens");
  refused([](auto& o) { o.length = -5; }, "-5 tokens");
  refused([](auto& o) { o.length = 100; }, "do not fit into 100 tokens");
  refused([](auto& o) { o.length = 10000000; }, "contexts of 10000000");
  refused([](auto& o) { o.facts = -1; }, "-1 facts");
  refused([](auto& o) { o.facts = 1000000; }, "only 3410 facts");
  refused([](auto& o) { o.facts = 2000; }, "do not fit");
  refused([](auto& o) { o.questions = 0; }, "0 questions");
  refused([](auto& o) { o.samples = 0; }, "0 samples");
}

}  // namespace
}  // namespace godwit
