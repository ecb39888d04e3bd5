#include "text/chat_template.h"

#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Each committed template over each conversation, with and without a generation prompt, equals transformers.
TEST(ChatTemplate, FamiliesMatchTransformers) {
  const std::string folder = GODWIT_TEST_DATA "/templates/";
  Json data = Json::parse(read_file(folder + "cases.json"));
  std::map<std::string, ChatTemplate> templates;
  ASSERT_GT(data["cases"].size(), 700u);
  size_t rendered = 0;
  for (const Json& row : data["cases"]) {
    std::string name = row["template"];
    if (!templates.contains(name)) {
      auto made = ChatTemplate::make(read_file(folder + name), "<s>", "</s>", name);
      ASSERT_TRUE(made) << made.error().message;
      templates.emplace(name, *made);
    }
    const Json& conversation = data["conversations"][row["conversation"].get<std::string>()];
    ChatOptions options;
    options.tools = conversation.value("tools", Json());
    options.documents = conversation.value("documents", Json());
    options.extra = conversation.value("extra", Json::object());
    options.add_generation_prompt = row["add_generation_prompt"];
    options.render.now = jinja::CivilTime{2024, 7, 26, 13, 5, 9};
    auto out = templates.at(name).apply(conversation["messages"], options);
    std::string what = name + " over " + row["conversation"].get<std::string>();
    if (row.contains("error")) {
      ASSERT_FALSE(out) << what;
      bool raised = out.error().code == ErrorCode::kInvalidArgument;
      if (raised) {
        EXPECT_NE(out.error().message.find(row["error"].get<std::string>()), std::string::npos) << what;
      }
    } else {
      ASSERT_TRUE(out) << what << ": " << out.error().message;
      EXPECT_EQ(*out, row["output"].get<std::string>()) << what;
      rendered++;
    }
  }
  EXPECT_GT(rendered, 600u);
}

TEST(ChatTemplate, ChoosesAmongNamedTemplates) {
  Json list =
      Json::array({{{"name", "default"}, {"template", "plain"}}, {{"name", "tool_use"}, {"template", "tools"}}});
  auto chat = ChatTemplate::from_json(list, "", "", "m");
  ASSERT_TRUE(chat) << chat.error().message;
  Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  EXPECT_EQ(chat->apply(messages).value(), "plain");
  ChatOptions options;
  options.tools = Json::array({{{"type", "function"}}});
  EXPECT_EQ(chat->apply(messages, options).value(), "tools");
  list.erase(1);
  EXPECT_EQ(ChatTemplate::from_json(list, "", "", "m")->apply(messages, options).value(), "plain");
  list[0]["name"] = "rag";
  auto none = ChatTemplate::from_json(list, "", "", "m")->apply(messages);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("rag"), std::string::npos) << none.error().message;
}

TEST(ChatTemplate, AbsentTemplateSaysHowToGiveOne) {
  auto chat = ChatTemplate::from_json(Json(), "", "", "model.gguf");
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(chat.error().message, "model.gguf has no chat template; give one with --chat-template FILE");
  EXPECT_EQ(ChatTemplate::from_json(Json(5), "", "", "m").error().code, ErrorCode::kBadData);
  EXPECT_EQ(ChatTemplate::from_json(Json::array({1}), "", "", "m").error().code, ErrorCode::kBadData);
}

TEST(ChatTemplate, RejectsMalformedInput) {
  auto chat = ChatTemplate::make("x", "", "", "m");
  ASSERT_TRUE(chat);
  Json good = Json::array({{{"role", "user"}, {"content", "x"}}});
  EXPECT_EQ(chat->apply(Json()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(chat->apply(Json::array()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(chat->apply(Json::array({1})).error().message, "messages[0] must be an object");
  EXPECT_EQ(chat->apply("text").error().code, ErrorCode::kInvalidArgument);
  ChatOptions options;
  options.tools = "no";
  EXPECT_EQ(chat->apply(good, options).error().message, "tools must be a list");
}

TEST(ChatTemplate, ExtraVariablesOverrideAndKeyOrderIsKept) {
  auto chat = ChatTemplate::make("{{ bos_token }}{{ eos_token }}{{ messages[0] | tojson }}", "<s>", "</s>", "m");
  ASSERT_TRUE(chat);
  Json messages = Json::array({Json::parse(R"({"z": 1, "role": "user", "a": 2})")});
  ChatOptions options;
  options.extra = {{"eos_token", "END"}};
  EXPECT_EQ(chat->apply(messages, options).value(), R"(<s>END{"z": 1, "role": "user", "a": 2})");
}

TEST(ChatTemplate, ReasoningIsVisibleUnderBothNames) {
  auto chat = ChatTemplate::make("{{ messages[0] | tojson }}", "", "", "m");
  Json messages = Json::array({Json::parse(R"({"role": "assistant", "reasoning": "r"})")});
  EXPECT_EQ(chat->apply(messages).value(),
            R"({"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"})");
}

TEST(ChatTemplate, DefaultClockIsTheLocalOne) {
  auto chat = ChatTemplate::make("{{ strftime_now('%Y') | int > 2000 }}", "", "", "m");
  Json messages = Json::array({{{"role", "user"}}});
  EXPECT_EQ(chat->apply(messages).value(), "True");
}

}  // namespace
}  // namespace godwit
