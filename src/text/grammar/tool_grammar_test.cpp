// Forced calls: what the grammar accepts, the parser reads back, in every format.
#include "text/grammar/tool_grammar.h"

#include <random>

#include "text/grammar/test_grammars.h"

namespace godwit {
namespace {

using grammar_test::value_of;

const std::vector<Tool> kTools = {
    {"get_weather", "", R"({"type":"object","properties":{"city":{"type":"string","maxLength":8},
        "days":{"type":"integer","minimum":1,"maximum":9}},"required":["city"],"additionalProperties":false})"},
    {"now", "", ""},
    {"say \"hi\"", "", R"({"properties":{"x":{"$ref":"#/$defs/y"}},"$defs":{"y":{"enum":["a","</tool_call>"]}}})"},
};

struct Style {
  ToolStyle style;
  const char* tokenizer;
  std::vector<std::string> specials{};
};
const Style kStyles[] = {
    {{ToolFormat::kHermes}, "qwen2"},
    {{ToolFormat::kHermes}, "qwen2", {"<tool_call>"}},
    {{ToolFormat::kLlama}, "llama3"},
    {{ToolFormat::kJson}, "gpt2"},
    {{ToolFormat::kMistral}, "mistral", {"[TOOL_CALLS]"}},
    {{ToolFormat::kMistral, true}, "tekken", {"[TOOL_CALLS]", "[ARGS]"}},
    {{ToolFormat::kDeepSeek}, "deepseek3", {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"}},
    {{ToolFormat::kDeepSeek, true}, "gpt2"},
};

// The text as a decoder that keeps special tokens has it.
std::string visible(std::string text) {
  std::erase(text, TokenTrie::kSpecialMark);
  return text;
}

TEST(ToolGrammar, WhatItAcceptsTheParserReads) {
  std::mt19937 random(3);
  TokenMask mask;
  for (const Style& one : kStyles) {
    const Tokenizer tokenizer = grammar_test::tokenizer(one.tokenizer, one.specials);
    const auto trie = std::make_shared<TokenTrie>(value_of(TokenTrie::make(tokenizer, tokenizer.vocab_size(), {})));
    const auto constraint =
        std::make_shared<Constraint>(value_of(tool_call_grammar(tokenizer, one.style, kTools, 3)), trie);
    size_t ended = 0, most = 0;
    for (int round = 0; round < 60; ++round) {
      ConstraintState state = value_of(ConstraintState::start(constraint));
      std::string text;
      for (int i = 0; i < 500 && !state.must_end() && !(state.may_end() && random() % 2 == 0); ++i) {
        ASSERT_TRUE(state.allowed(mask).has_value());
        std::vector<TokenId> tokens;
        for (TokenId id = 0; id < trie->vocab_size(); ++id)
          if ((mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1) != 0) tokens.push_back(id);
        ASSERT_FALSE(tokens.empty()) << text;
        const TokenId token = tokens[random() % tokens.size()];
        text += trie->bytes(token);
        ASSERT_TRUE(value_of(state.advance(token)));
      }
      if (!state.may_end()) continue;
      ++ended;
      ToolCallParser parser(one.style.format, {"get_weather", "now", "say \"hi\""}, 1);
      ToolCallParser::Output output = parser.push(visible(text));
      for (ToolCall& call : parser.finish().calls) output.calls.push_back(std::move(call));
      ASSERT_FALSE(output.calls.empty()) << text;
      EXPECT_EQ(output.content, "") << text;
      most = std::max(most, output.calls.size());
      for (const ToolCall& call : output.calls) {
        const auto arguments = nlohmann::json::parse(call.arguments);
        EXPECT_EQ(arguments.contains("city"), call.name == "get_weather") << text;
        EXPECT_TRUE(call.name != "now" || arguments.empty()) << text;
      }
    }
    EXPECT_GT(ended, 30U) << one.tokenizer;
    EXPECT_EQ(most > 1, one.style.format != ToolFormat::kLlama && one.style.format != ToolFormat::kJson);
  }
}

TEST(ToolGrammar, MarksThatAreSpecialTokensComeAsSuch) {
  using grammar_test::judge;
  using grammar_test::Verdict;
  const char* call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const Tokenizer without = grammar_test::tokenizer("qwen2"), with = grammar_test::tokenizer("qwen2", {"<tool_call>"});
  const Grammar text = value_of(tool_call_grammar(without, {ToolFormat::kHermes}, kTools, 1));
  EXPECT_EQ(judge(text, call), Verdict::kWhole);
  EXPECT_EQ(judge(text, "\xFF<tool_call>"), Verdict::kNo);
  const Grammar special = value_of(tool_call_grammar(with, {ToolFormat::kHermes}, kTools, 1));
  EXPECT_EQ(judge(special, call), Verdict::kNo);
  EXPECT_EQ(judge(special, std::string("\xFF") + call), Verdict::kWhole);
}

TEST(ToolGrammar, ErrorsNameTheTool) {
  const Tokenizer tokenizer = grammar_test::tokenizer("gpt2");
  const auto message = [&](std::vector<Tool> tools, int most = 1) {
    const auto grammar = tool_call_grammar(tokenizer, {ToolFormat::kHermes}, tools, most);
    return grammar ? std::string("none") : grammar.error().message;
  };
  EXPECT_NE(message({{"f", "", R"({"type":"object","properties":{"a":{"not":{}}}})"}}).find("'f' at '/properties/a'"),
            std::string::npos);
  EXPECT_NE(message({{"f", "", R"({"type":"array"})"}}).find("type object"), std::string::npos);
  EXPECT_NE(message({{"f", "", "{"}}).find("'f'"), std::string::npos);
  EXPECT_NE(message({}).find("no tool"), std::string::npos);
  EXPECT_NE(message(kTools, 0).find("0 calls"), std::string::npos);
}

}  // namespace
}  // namespace godwit
