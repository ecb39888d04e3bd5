// Calls of tools in what models say: every format, however the text is cut, and what is none.
#include "text/tool_calls.h"

#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace godwit {
namespace {

using Output = ToolCallParser::Output;

Output parse(ToolFormat format, std::string_view text, const std::vector<size_t>& cuts = {}) {
  ToolCallParser parser(format, {"get_weather", "add"}, 7);
  Output all;
  const auto take = [&](Output part) {
    all.content += part.content;
    for (ToolCall& call : part.calls) all.calls.push_back(std::move(call));
  };
  size_t begin = 0;
  for (const size_t cut : cuts) {
    take(parser.push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  take(parser.push(text.substr(begin)));
  take(parser.finish());
  return all;
}

std::string show(const Output& output) {
  std::string text = output.content + "|";
  for (const ToolCall& call : output.calls) text += call.name + call.arguments + ";";
  return text;
}

struct Case {
  ToolFormat format;
  const char *text, *want;  // content, '|', calls
};

const Case kCases[] = {
    {ToolFormat::kHermes, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}}\n</tool_call>",
     R"(|add{"a":1,"b":[2]};)"},
    {ToolFormat::kHermes,
     "Let me "
     "see.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"x\",\"arguments\":"
     "\"{\\\"q\\\":1}\"}</tool_call>\n",
     R"(Let me see.|add{};x{"q":1};)"},
    {ToolFormat::kHermes, R"(<tool_call>{"name":"add","arguments":{"s":"</tool_call>é\""}}</tool_call> Done.)",
     R"(Done.|add{"s":"</tool_call>é\""};)"},
    {ToolFormat::kHermes, R"(<tool_call>{"name":"add","arguments":{}})", "|add{};"},  // the end came first
    {ToolFormat::kHermes, "1 < 2 and <tool> is no call", "1 < 2 and <tool> is no call|"},
    {ToolFormat::kHermes, "<tool_call>no JSON</tool_call> so", "<tool_call>no JSON</tool_call> so|"},
    {ToolFormat::kHermes, "a <tool_ca", "a <tool_ca|"},
    {ToolFormat::kHermes, "a <tool_call>{\"name\":", "a <tool_call>{\"name\":|"},
    {ToolFormat::kHermes, "  two spaces stay  ", "  two spaces stay  |"},
    {ToolFormat::kHermes, "<tool_call>[1]</tool_call><tool_call>{\"name\":\"add\",\"arguments\":[]}</tool_call>",
     "<tool_call>[1]</tool_call><tool_call>{\"name\":\"add\",\"arguments\":[]}</tool_call>|"},
    {ToolFormat::kLlama, R"({"name": "get_weather", "parameters": {"city": "Oslo"}})",
     R"(|get_weather{"city":"Oslo"};)"},
    {ToolFormat::kLlama, R"(<|python_tag|>{"name": "add", "parameters": {}}; {"name":"add","parameters":{"a":1}})",
     R"(|add{};add{"a":1};)"},
    {ToolFormat::kLlama, R"(<|python_tag|>get_weather.call(city="Oslo, Norway", days=3))",
     R"(|get_weather{"city":"Oslo, Norway","days":3};)"},
    {ToolFormat::kLlama, "<|python_tag|>print(1)", "<|python_tag|>print(1)|"},
    {ToolFormat::kLlama, R"({"name": "unknown", "parameters": {}})", R"({"name": "unknown", "parameters": {}}|)"},
    {ToolFormat::kLlama, R"({"answer": 42})", R"({"answer": 42}|)"},
    {ToolFormat::kLlama, R"(It is {"name": "add", "parameters": {}})", R"(It is {"name": "add", "parameters": {}}|)"},
    {ToolFormat::kLlama, R"({"name": "add", "parameters": {)", R"({"name": "add", "parameters": {|)"},
    {ToolFormat::kJson, R"([{"name":"add","arguments":{}},{"function":{"name":"add","arguments":"{\"b\":2}"}}])",
     R"(|add{};add{"b":2};)"},
    {ToolFormat::kJson, "[1, 2]", "[1, 2]|"},
    {ToolFormat::kMistral, R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name":"x","arguments":{}}])",
     R"(|add{"a":1};x{};)"},
    {ToolFormat::kMistral, R"(Wait. [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]x[CALL_ID]123[ARGS]{})",
     R"(Wait.|add{"a":1};x{};)"},
    {ToolFormat::kMistral, R"([TOOL_CALLS]add{"a": {"b": "}"}})", R"(|add{"a":{"b":"}"}};)"},
    {ToolFormat::kMistral, "[TOOL_CALLS] [oops]", "[TOOL_CALLS] [oops]|"},
    {ToolFormat::kMistral, "[TOOL_CALLS]", "[TOOL_CALLS]|"},
    {ToolFormat::kDeepSeek,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": "
     "1}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>x\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     R"(|add{"a":1};x{};)"},
    {ToolFormat::kDeepSeek,
     "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": \"```\"}<｜tool▁call▁end｜>",
     R"(Hm.|add{"a":"```"};)"},
    {ToolFormat::kDeepSeek, "<｜tool▁calls▁begin｜>nothing<｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜>nothing<｜tool▁calls▁end｜>|"},
};

TEST(ToolCalls, EveryFormatHoweverTheTextIsCut) {
  std::mt19937 random(1);
  for (const Case& one : kCases) {
    const std::string_view text = one.text;
    EXPECT_EQ(show(parse(one.format, text)), one.want);
    std::vector<size_t> each;
    for (size_t i = 1; i < text.size(); ++i) each.push_back(i);
    EXPECT_EQ(show(parse(one.format, text, each)), one.want) << "byte by byte";
    for (int round = 0; round < 20; ++round) {
      std::vector<size_t> cuts;
      for (size_t at = random() % 9; at < text.size(); at += 1 + random() % 9) cuts.push_back(at);
      ASSERT_EQ(show(parse(one.format, text, cuts)), one.want);
    }
  }
}

TEST(ToolCalls, ContentComesAsSoonAsItCanBeNoCall) {
  ToolCallParser marked(ToolFormat::kHermes, {}, 1);
  EXPECT_EQ(marked.push("Well, <").content, "Well,");
  EXPECT_EQ(marked.push("3").content, " <3");
  ToolCallParser plain(ToolFormat::kLlama, {"add"}, 1);
  EXPECT_EQ(plain.push("Hello").content, "Hello");
  ToolCallParser call(ToolFormat::kHermes, {}, 1);
  EXPECT_EQ(call.push("<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>").calls.size(), 1U);
}

TEST(ToolCalls, IdsDifferAndFitTheFormat) {
  const char* two =
      "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"a\",\"arguments\":{}}</"
      "tool_call>";
  const Output calls = parse(ToolFormat::kHermes, two);
  ASSERT_EQ(calls.calls.size(), 2U);
  EXPECT_TRUE(calls.calls[0].id.starts_with("call_"));
  EXPECT_NE(calls.calls[0].id, calls.calls[1].id);
  const Output mistral = parse(ToolFormat::kMistral, R"([TOOL_CALLS][{"name":"a","arguments":{}}])");
  ASSERT_EQ(mistral.calls.size(), 1U);
  EXPECT_EQ(mistral.calls[0].id.size(), 9U);  // what Mistral's templates insist on
}

TEST(ToolCalls, BrokenTextIsContentAndNothingElseIsLost) {
  const std::string_view parts[] = {"<tool_call>",
                                    "</tool_call>",
                                    "{\"name\":",
                                    "\"add\"",
                                    ",\"arguments\":",
                                    "{",
                                    "}",
                                    "\"",
                                    "\\",
                                    "[TOOL_CALLS]",
                                    "[ARGS]",
                                    "[",
                                    "]",
                                    " ",
                                    "\n",
                                    "<｜tool▁calls▁begin｜>",
                                    "<｜tool▁call▁begin｜>",
                                    "<｜tool▁sep｜>",
                                    "<｜tool▁call▁end｜>",
                                    "<｜tool▁calls▁end｜>",
                                    "<|python_tag|>",
                                    "add.call(",
                                    "a=1",
                                    ")",
                                    "\xff",
                                    "```",
                                    "word",
                                    ";"};
  std::mt19937 random(2);
  int calls = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t n = random() % 14; n > 0; --n) text += parts[random() % std::size(parts)];
    const auto format = static_cast<ToolFormat>(round % 5);
    const Output output = parse(format, text, {random() % (text.size() + 1)});
    calls += static_cast<int>(output.calls.size());
    ASSERT_TRUE(!output.calls.empty() || output.content == text) << text;
    for (const ToolCall& call : output.calls) ASSERT_TRUE(nlohmann::json::accept(call.arguments));
  }
  EXPECT_GT(calls, 0);
}

TEST(ToolCalls, TheTemplateTellsTheFormat) {
  EXPECT_FALSE(tool_style_of("{% for m in messages %}{{ m.content }}{% endfor %}").has_value());
  EXPECT_EQ(tool_style_of("{% if tools %}<tool_call>{% endif %}")->format, ToolFormat::kHermes);
  EXPECT_EQ(tool_style_of("{% if tools %}<|python_tag|>{% endif %}")->format, ToolFormat::kLlama);
  EXPECT_EQ(tool_style_of("tools [TOOL_CALLS]")->format, ToolFormat::kMistral);
  EXPECT_FALSE(tool_style_of("tools [TOOL_CALLS]")->newer);
  EXPECT_TRUE(tool_style_of("tools [TOOL_CALLS] [ARGS]")->newer);
  EXPECT_EQ(tool_style_of("tools <｜tool▁calls▁begin｜>")->format, ToolFormat::kDeepSeek);
  EXPECT_TRUE(tool_style_of("tools <｜tool▁calls▁begin｜>")->newer);
  EXPECT_FALSE(tool_style_of("tools <｜tool▁calls▁begin｜> ```json")->newer);
  EXPECT_EQ(tool_style_of("{{ tools | tojson }}")->format, ToolFormat::kJson);
}

}  // namespace
}  // namespace godwit
