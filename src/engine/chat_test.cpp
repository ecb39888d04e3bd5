// Tools in conversations: how they reach the prompt, and how calls come back.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

EngineOptions with_template(const std::string& name) {
  EngineOptions options = options_for("qwen3");
  std::ifstream file(std::string(GODWIT_TEST_DATA) + "/templates/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  options.chat_template = text.str();
  EXPECT_FALSE(options.chat_template.empty());
  return options;
}

const Tool kAdd = {"add", "Adds numbers",
                   R"({"type":"object","properties":{"b":{"type":"integer","minimum":0,"maximum":99},
                       "a":{"type":"integer","minimum":0,"maximum":99}},"required":["b","a"]})"};

ChatRequest conversation() {
  ChatRequest request;
  request.messages = {{"system", "Be brief."},
                      {"user", "What is 1 + 2?"},
                      {"assistant", "", {{"call_1", "add", R"({"b": 2, "a": 1})"}}},
                      {"tool", "3", {}, "call_1", "add"}};
  request.tools = {kAdd};
  return request;
}

std::string prompt_text(const Engine& engine, const ChatRequest& request) {
  return engine.detokenize(value_of(engine.chat_prompt(request)), true);
}

void expect_in(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << "\n is not in\n" << text;
}

TEST(Chat, ATemplateGetsToolsCallsAndAnswers) {
  const Engine engine = open(with_template("qwen25.jinja"));
  EXPECT_EQ(engine.tool_format(), ToolFormat::kHermes);
  EXPECT_EQ(engine.info().tool_format, "hermes");
  const std::string text = prompt_text(engine, conversation());
  expect_in(text, R"({"type": "function", "function": {"name": "add", "description": "Adds numbers", "parameters": {)");
  expect_in(text, R"("properties": {"b": {)");  // in the caller's order
  expect_in(text, R"(<tool_call>)");
  expect_in(text, R"({"name": "add", "arguments": {"b": 2, "a": 1}})");
  expect_in(text, "<tool_response>\n3\n</tool_response>");
  expect_in(text, "Be brief.");
}

TEST(Chat, OtherTemplatesTellTheirFormats) {
  EXPECT_EQ(open(with_template("llama3.jinja")).tool_format(), ToolFormat::kLlama);
  EXPECT_EQ(open(with_template("mistral_tools.jinja")).tool_format(), ToolFormat::kMistral);
  EXPECT_EQ(open(with_template("deepseek.jinja")).tool_format(), ToolFormat::kDeepSeek);
  expect_in(prompt_text(open(with_template("llama3.jinja")), conversation()),
            R"({"name": "add", "parameters": {"b": 2, "a": 1}})");
}

TEST(Chat, WithoutToolsInTheTemplateItIsAnErrorOrTextThatTheCallerAskedFor) {
  const Engine engine = open(with_template("chatml.jinja"));
  EXPECT_FALSE(engine.tool_format().has_value());
  EXPECT_EQ(engine.info().tool_format, "");
  ChatRequest request = conversation();
  expect_error(engine.chat_prompt(request), ErrorCode::kUnsupported, "takes no tools");
  request.tools_in_prompt = true;
  const std::string text = prompt_text(engine, request);
  expect_in(text, "Be brief.\n\nYou can call tools.");
  expect_in(text, R"({"name":"add","description":"Adds numbers","parameters":{)");
  expect_in(text, "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"b\":2,\"a\":1}}\n</tool_call>");
  expect_in(text, "user\n<tool_response>\n3\n</tool_response>");
  request.tools.clear();
  request.messages.resize(2);
  EXPECT_EQ(prompt_text(engine, request).find("tool"), std::string::npos);
}

TEST(Chat, WhatMakesNoSenseIsNamed) {
  const Engine engine = open(with_template("qwen25.jinja"));
  ChatRequest request = conversation();
  request.messages[2].tool_calls[0].arguments = "[1]";
  expect_error(engine.chat_prompt(request), ErrorCode::kInvalidArgument, "the call of 'add'");
  request = conversation();
  request.tools[0].parameters = "{";
  expect_error(engine.chat_prompt(request), ErrorCode::kBadData, "the tool 'add'");
  request = conversation();
  request.variables = "1";
  expect_error(engine.chat_prompt(request), ErrorCode::kInvalidArgument, "variables");
  expect_error(engine.tool_calls({}), ErrorCode::kInvalidArgument, "no tool");
}

TEST(Chat, VariablesReachTheTemplate) {
  EngineOptions options = options_for("qwen3");
  options.chat_template = "{{ messages[0].content }}{% if loud %}!{% endif %}";
  const Engine engine = open(options);
  ChatRequest request{.messages = {{"user", "hi"}}};
  EXPECT_EQ(prompt_text(engine, request), "hi");
  request.variables = R"({"loud": true})";
  EXPECT_EQ(prompt_text(engine, request), "hi!");
}

TEST(Chat, ForcedCallsComeBackAsCalls) {
  for (const char* name : {"qwen25.jinja", "llama3.jinja", "mistral_tools.jinja", "deepseek.jinja", "chatml.jinja"}) {
    const Engine engine = open(with_template(name));
    for (uint64_t seed = 0; seed < 4; ++seed) {
      GenerateOptions options;
      options.max_tokens = 400;
      options.keep_special = true;
      options.sampling.temperature = 1;
      options.sampling.seed = seed;
      options.constraint = value_of(engine.tool_calls(std::vector{kAdd}, 2));
      Session session = engine.start();
      append(session, prompt(20, 3));
      ToolCallParser parser = engine.tool_parser(std::vector{kAdd});
      ToolCallParser::Output all;
      const auto take = [&](ToolCallParser::Output part) {
        all.content += part.content;
        for (ToolCall& call : part.calls) all.calls.push_back(std::move(call));
      };
      const Generation answer = value_of(session.generate(options, [&](const Piece& piece) {
        take(parser.push(piece.text));
        return true;
      }));
      take(parser.finish());
      ASSERT_EQ(answer.finish, FinishReason::kStop) << name << "\n" << answer.text;
      EXPECT_EQ(all.content, "") << answer.text;
      ASSERT_TRUE(!all.calls.empty() && all.calls.size() <= 2) << name << "\n" << answer.text;
      for (const ToolCall& call : all.calls) {
        EXPECT_EQ(call.name, "add");
        const auto arguments = nlohmann::json::parse(call.arguments);
        EXPECT_TRUE(arguments.size() == 2 && arguments["a"] <= 99 && arguments["b"] >= 0) << call.arguments;
      }
    }
  }
}

TEST(Chat, SpecialTokensAreTextOnlyWhereAskedFor) {
  const Engine engine = open();
  const auto special = value_of(engine.tokenize("<|im_start|>", {.add_bos = false, .parse_special = true}));
  GenerateOptions options = greedy(2);
  options.sampling.logit_bias = {{special[0], 1000.0F}};
  Session session = engine.start();
  append(session, prompt(20));
  EXPECT_EQ(value_of(session.generate(options)).text, "");
  options.keep_special = true;
  EXPECT_EQ(value_of(session.generate(options)).text, "<|im_start|><|im_start|>");
}

}  // namespace
}  // namespace godwit
