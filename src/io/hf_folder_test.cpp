#include "io/hf_folder.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

class HfFolderTest : public ::testing::Test {
 protected:
  HfFolderTest() {
    for (const auto& file : std::filesystem::directory_iterator(data_path("sharded")))
      std::filesystem::copy(file.path(), folder_ / file.path().filename().string());
  }
  Result<HfFolder> open() { return HfFolder::open(folder_.path()); }
  TempFolder folder_;
};

TEST_F(HfFolderTest, OpensTheLeastThereIs) {
  auto model = open();
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->path(), folder_.path());
  EXPECT_EQ(model->config().get<int64_t>("hidden_size").value(), 4);
  EXPECT_FALSE(model->config().has("rope_scaling"));
  EXPECT_EQ(model->weights().tensors().size(), 4u);
  EXPECT_FALSE(model->generation_config());
  EXPECT_FALSE(model->tokenizer_config());
  EXPECT_FALSE(model->chat_template().value());
  expect_error(model->tokenizer(), ErrorCode::kNotFound, "tokenizer.json is missing; download");
  write_file(folder_ / "tokenizer.model", "x");
  expect_error(model->tokenizer(), ErrorCode::kNotFound, "tokenizer.json is missing; convert tokenizer.model");
}

TEST_F(HfFolderTest, ReadsTheOptionalFiles) {
  write_file(folder_ / "generation_config.json", R"({"eos_token_id":[1,2]})");
  write_file(folder_ / "tokenizer.json", R"({"version":"1.0"})");
  write_file(folder_ / "tokenizer_config.json", R"({"chat_template":"from config"})");
  auto model = open().value();
  EXPECT_EQ(model.generation_config()->get<std::vector<int64_t>>("eos_token_id").value(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(model.tokenizer().value(), R"({"version":"1.0"})");
  EXPECT_EQ(model.chat_template().value(), "from config");
  write_file(folder_ / "chat_template.jinja", "from file");
  EXPECT_EQ(open()->chat_template().value(), "from file");
}

TEST_F(HfFolderTest, NamedTemplates) {
  auto with = [&](std::string_view value) {
    write_file(folder_ / "tokenizer_config.json", fmt::format(R"({{"chat_template":{}}})", value));
    return open().value().chat_template();
  };
  EXPECT_EQ(with(R"([{"name":"rag","template":"r"},{"name":"default","template":"d"}])").value(), "d");
  EXPECT_EQ(with(R"([{"name":"rag","template":"r"}])").value(), "r");
  expect_error(
      with(R"([{"name":"rag","template":"r"},{"name":"tool_use","template":"t"}])"), ErrorCode::kNotFound,
      "tokenizer_config.json: the chat templates are named 'rag', 'tool_use', and none 'default'; give one with "
      "--chat-template");
  EXPECT_FALSE(with("[]").value());
  expect_error(with("[1]"), ErrorCode::kBadData, "tokenizer_config.json: an entry of 'chat_template'");
  expect_error(with("1"), ErrorCode::kBadData, "'chat_template' should be a string");
  EXPECT_FALSE(with("null").value());
}

TEST_F(HfFolderTest, ErrorsNameTheFile) {
  constexpr auto kBad = ErrorCode::kBadData;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    const bool there = std::filesystem::exists(folder_ / name);
    const std::string old = there ? read_file(folder_ / name) : "";
    write_file(folder_ / name, "{");
    expect_error(open(), kBad, fmt::format("{}: not valid JSON", name));
    write_file(folder_ / name, "[]");
    expect_error(open(), kBad, fmt::format("{}: expected a JSON object", name));
    write_file(folder_ / name, "null");
    expect_error(open(), kBad, fmt::format("{}: expected a JSON object", name));
    write_file(folder_ / name, "");
    expect_error(open(), kBad, fmt::format("{}: the file is empty", name));
    std::filesystem::remove(folder_ / name);
    std::filesystem::create_directory(folder_ / name);
    expect_error(open(), ErrorCode::kInvalidArgument, fmt::format("{}: is a folder", name));
    std::filesystem::remove(folder_ / name);
    if (there) write_file(folder_ / name, old);
  }
  ASSERT_TRUE(open());
  write_file(folder_ / "chat_template.jinja", std::string(5 << 20, 'x'));
  expect_error(open(), ErrorCode::kExhausted, "chat_template.jinja: a chat template of");
}

TEST_F(HfFolderTest, MissingPieces) {
  std::filesystem::remove(folder_ / "model.safetensors.index.json");
  expect_error(open(), ErrorCode::kNotFound, "neither model.safetensors nor");
  std::filesystem::remove(folder_ / "config.json");
  expect_error(open(), ErrorCode::kNotFound, "config.json is missing; give the folder");
  expect_error(HfFolder::open(folder_ / "gone"), ErrorCode::kNotFound, "gone: no such folder");
  write_file(folder_ / "file", "x");
  expect_error(HfFolder::open(folder_ / "file"), ErrorCode::kInvalidArgument, "file: is not a folder");
}

}  // namespace
}  // namespace godwit
