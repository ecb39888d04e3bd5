// Answers that are held to a grammar, by sessions and by a service.
#include <future>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/test_engine.h"
#include <godwit/service.h>

namespace godwit {
namespace {

using namespace engine_test;

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"size":{"type":"integer","minimum":1,
        "maximum":20},"kinds":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},
        "required":["name","size","kinds"],"additionalProperties":false})";

GenerateOptions held(std::shared_ptr<const Constraint> constraint, uint64_t seed, float temperature = 1.5F) {
  GenerateOptions options;
  options.max_tokens = 300;
  options.sampling.temperature = temperature;
  options.sampling.seed = seed;
  options.constraint = std::move(constraint);
  return options;
}

Generation answer(const Engine& engine, const GenerateOptions& options, uint32_t prompt_seed = 1) {
  Session session = engine.start();
  append(session, prompt(20, prompt_seed));
  return value_of(session.generate(options));
}

void expect_valid(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(json.is_object()) << text;
  ASSERT_TRUE(json.size() == 3 && json["name"].is_string() && json["kinds"].is_array()) << text;
  EXPECT_TRUE(json["size"].is_number_integer() && json["size"] >= 1 && json["size"] <= 20) << text;
}

TEST(Constraint, EveryAnswerIsWhatTheSchemaAsksFor) {
  const Engine engine = open();
  const auto constraint = value_of(engine.json_schema(kSchema));
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Generation got = answer(engine, held(constraint, seed, seed % 3 == 0 ? 0.0F : 1.5F), 1 + seed % 4);
    ASSERT_EQ(got.finish, FinishReason::kStop) << got.text;
    expect_valid(got.text);
  }
  GenerateOptions free = held(nullptr, 1);
  free.max_tokens = 60;
  EXPECT_FALSE(nlohmann::json::accept(answer(engine, free).text));  // without the constraint it is no JSON
}

TEST(Constraint, EveryFamilyOfTokenizersCanDoIt) {
  for (const char* model : {"llama", "gemma2", "mistral", "phi3", "llama3"}) {
    const Engine engine = open(model);
    const auto constraint = value_of(engine.json_schema(kSchema));
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Generation got = answer(engine, held(constraint, seed));
      ASSERT_EQ(got.finish, FinishReason::kStop) << model << ": " << got.text;
      expect_valid(got.text);
    }
  }
}

TEST(Constraint, TheTokenLimitSaysLength) {
  const Engine engine = open();
  GenerateOptions options = held(value_of(engine.json_schema(R"({"type":"string","minLength":500})")), 1);
  options.max_tokens = 9;
  const Generation got = answer(engine, options);
  EXPECT_EQ(got.finish, FinishReason::kLength);
  EXPECT_EQ(got.tokens.size(), 9U);
  EXPECT_TRUE(got.text.starts_with('"')) << got.text;
}

TEST(Constraint, EndTokensComeOnlyWhereTheAnswerMayEnd) {
  const Engine engine = open();
  const TokenId end = engine.end_tokens()[0];
  // However much the model wants to end.
  GenerateOptions options = held(value_of(engine.json_schema(R"({"type":"integer","minimum":100})")), 3);
  options.sampling.logit_bias = {{end, 1000.0F}};
  const Generation got = answer(engine, options);
  EXPECT_EQ(got.finish, FinishReason::kStop);
  EXPECT_EQ(got.tokens.back(), end);
  EXPECT_EQ(std::stoll(got.text) / 1000, 0) << got.text;  // as soon as it may
  EXPECT_GE(std::stoll(got.text), 100);
  // With it ignored, the number grows to its limit and ends by itself.
  options.ignore_eos = true;
  const Generation longest = answer(engine, options);
  EXPECT_EQ(longest.finish, FinishReason::kStop);
  EXPECT_EQ(longest.text.size(), 18U) << longest.text;
  // Stop tokens of the request likewise.
  const auto special = value_of(engine.tokenize("<|im_start|>", {.add_bos = false, .parse_special = true}));
  ASSERT_EQ(special.size(), 1U);
  options.stop_tokens = special;
  options.sampling.logit_bias = {{special[0], 1000.0F}};
  EXPECT_EQ(answer(engine, options).text, got.text);
}

TEST(Constraint, LogprobsAreThoseAmongTheAllowed) {
  const Engine engine = open();
  GenerateOptions options = held(value_of(engine.json_schema(R"({"enum":["a","b"]})")), 1, 0);
  options.sampling.logprobs = 20;
  Session session = engine.start();
  append(session, prompt(20));
  std::vector<Piece> pieces;
  const Generation got = value_of(session.generate(options, [&](const Piece& piece) {
    pieces.push_back(piece);
    return true;
  }));
  ASSERT_TRUE(got.text == "\"a\"" || got.text == "\"b\"") << got.text;
  for (const Piece& piece : pieces) {
    double sum = 0;
    for (const TokenLogprob& top : piece.top) sum += std::exp(static_cast<double>(top.logprob));
    EXPECT_NEAR(sum, 1, 1e-4);
    EXPECT_LT(piece.top.size(), 20U);
    EXPECT_EQ(piece.top[0].id, piece.id);
  }
}

TEST(Constraint, OneSchemaIsCompiledOnceAndBelongsToItsEngine) {
  const Engine engine = open(), other = open();
  const auto one = value_of(engine.json_schema(kSchema));
  EXPECT_EQ(one, value_of(engine.json_schema(kSchema)));
  EXPECT_EQ(value_of(engine.json_object()), value_of(engine.json_object()));
  for (int i = 0; i < 40; ++i) value_of(engine.json_schema(fmt::format(R"({{"const":{}}})", i)));
  EXPECT_NE(one, value_of(engine.json_schema(kSchema)));
  Session session = other.start();
  append(session, prompt(5));
  expect_error(session.generate(held(one, 1)), ErrorCode::kInvalidArgument, "another engine");
  expect_error(engine.json_schema(R"({"not":{}})"), ErrorCode::kUnsupported, "'not'");
}

TEST(Constraint, AServiceGivesTheAnswersOfSessions) {
  const Engine engine = open();
  auto service = value_of(Service::start(engine, {.most_running = 6}));
  const auto schema = value_of(engine.json_schema(kSchema)), object = value_of(engine.json_object());
  std::vector<std::future<std::pair<std::string, FinishReason>>> futures;
  std::vector<GenerateOptions> asked;
  for (uint64_t i = 0; i < 24; ++i) {
    asked.push_back(held(i % 3 == 0 ? schema : i % 3 == 1 ? object : nullptr, i));
    asked.back().max_tokens = i % 3 == 2 ? 30 : 120;
    auto text = std::make_shared<std::string>();
    auto done = std::make_shared<std::promise<std::pair<std::string, FinishReason>>>();
    futures.push_back(done->get_future());
    value_of(service->submit(
        {.prompt = prompt(20, 1 + static_cast<uint32_t>(i % 4)), .options = asked.back(), .principal = {}},
        {[text](const Piece& piece) { *text += piece.text; },
         [text, done](const ServiceAnswer& end) {
           done->set_value({*text + end.error, end.finish});
         }}));
  }
  for (size_t i = 0; i < futures.size(); ++i) {
    const auto [text, finish] = futures[i].get();
    const Generation alone = answer(engine, asked[i], 1 + static_cast<uint32_t>(i % 4));
    EXPECT_EQ(text, alone.text) << i;
    EXPECT_EQ(finish, alone.finish) << i;
    if (asked[i].constraint == schema) expect_valid(text);
    const bool whole = asked[i].constraint == object && finish == FinishReason::kStop;
    EXPECT_TRUE(!whole || nlohmann::json::accept(text)) << text;
  }
}

}  // namespace
}  // namespace godwit
