// What a model's files say of the ends of its answers and of its chat template.
#include "engine/vocabulary.h"

#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

Vocabulary vocabulary(const std::filesystem::path& path) {
  return value_of(load_vocabulary(value_of(ModelSource::open(path)), {}));
}

bool ends_with(const Vocabulary& v, std::string_view token) {
  const auto id = v.tokenizer.find(token);
  EXPECT_TRUE(id.has_value()) << token;
  return id && std::find(v.end_tokens.begin(), v.end_tokens.end(), *id) != v.end_tokens.end();
}

// The file names one end, </s>; the template ends its turns with another.
TEST(Vocabulary, TheTemplatesEndOfTurnIsAnEndThoughTheFileListsAnother) {
  for (const char* model : {"phi3", "phi3.gguf"}) {
    const Vocabulary v = vocabulary(model_path(model));
    EXPECT_EQ(v.end_tokens.at(0), v.tokenizer.eos()) << model;
    EXPECT_TRUE(ends_with(v, "<|im_end|>")) << model;
    EXPECT_FALSE(ends_with(v, "<|im_start|>")) << model;
  }
}

TEST(Vocabulary, AWordThatLooksLikeAnEndIsNone) {
  ModelCopy copy("phi3");
  auto json = nlohmann::json::parse(io_test::read_file(model_path("phi3") / "tokenizer.json"));
  for (auto& token : json["added_tokens"])
    if (token["content"] == "<|im_end|>") token["special"] = false;
  copy.write("tokenizer.json", json.dump());
  EXPECT_FALSE(ends_with(vocabulary(copy.path()), "<|im_end|>"));
}

TEST(Vocabulary, TemplatesWithoutADefaultSpoilOnlyTheChat) {
  ModelCopy copy("phi3");
  copy.patch("tokenizer_config.json",
             R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "tool_use", "template": "t"}]})");
  EngineOptions options;
  options.model = copy.path().string();
  const ChatMessage message{"user", "hi"};
  expect_error(open(options).chat_tokens({&message, 1}), ErrorCode::kUnsupported, "'rag', 'tool_use'");
  options.chat_template = "{{ messages[0].content }}";
  EXPECT_FALSE(value_of(open(options).chat_tokens({&message, 1})).empty());
  options.chat_template.clear();
  copy.patch("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_EQ(open(options).detokenize(value_of(open(options).chat_tokens({&message, 1}))), "r");
  copy.patch("tokenizer_config.json", R"({"chat_template": 1})");
  expect_error(open(options).chat_tokens({&message, 1}), ErrorCode::kUnsupported, "'chat_template' should be a string");
}

}  // namespace
}  // namespace godwit
