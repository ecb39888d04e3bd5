#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

TEST(Safetensors, ReadsWhatTheReferencePackageWrites) {
  auto file = Safetensors::open(data_path("types.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  expect_tensors(file->tensors(), "types_safetensors.json");
  for (const TensorEntry& entry : file->tensors()) EXPECT_EQ(file->find(entry.name).value(), &entry);
  EXPECT_EQ(file->find("nothing").value(), nullptr);
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "é"}}));
}

TEST(Safetensors, UnreadableTypesAreErrorsOnlyWhenAskedFor) {
  auto file = Safetensors::open(data_path("types.safetensors")).value();
  std::map<std::string, std::string> unreadable;
  for (const auto& entry : file.unreadable()) unreadable[entry.name] = entry.dtype;
  EXPECT_EQ(unreadable,
            (std::map<std::string, std::string>{
                {"h.i64", "I64"}, {"i.u8", "U8"}, {"j.bool", "BOOL"}, {"k.f8", "F8_E4M3"}, {"l.f64", "F64"}}));
  expect_error(file.find("k.f8"), ErrorCode::kUnsupported, "tensor 'k.f8' has the unsupported type F8_E4M3");
  expect_error(file.find("h.i64"), ErrorCode::kUnsupported, "types.safetensors: tensor 'h.i64'");
}

TEST(Safetensors, ReadsShards) {
  auto folder = Safetensors::open(data_path("sharded"));
  ASSERT_TRUE(folder) << folder.error().message;
  expect_tensors(folder->tensors(), "sharded.json");
  EXPECT_EQ(folder->metadata().at("format"), "pt");
  auto owner = folder->owner();
  TensorEntry norm = *folder->find("norm.weight").value();
  folder = Safetensors::open(data_path("types.safetensors"));
  float first = 0;
  std::memcpy(&first, norm.bytes.data(), 4);
  EXPECT_EQ(first, 1.0f);
}

TEST(Safetensors, ASingleFileGoesBeforeAnIndex) {
  TempFolder folder;
  std::filesystem::copy(data_path("types.safetensors"), folder / "model.safetensors");
  write_file(folder / "model.safetensors.index.json", "not JSON");
  EXPECT_TRUE(Safetensors::open(folder.path()));
}

TEST(Safetensors, MissingFilesNameTheRemedy) {
  TempFolder folder;
  expect_error(Safetensors::open(folder / "gone.safetensors"), ErrorCode::kNotFound, "gone.safetensors: no such file");
  expect_error(Safetensors::open(folder.path()), ErrorCode::kNotFound, "neither model.safetensors nor");
  write_file(folder / "pytorch_model.bin", "x");
  expect_error(Safetensors::open(folder.path()), ErrorCode::kNotFound, "convert pytorch_model.bin");
}

TEST(Safetensors, IndexAndShardsMustAgree) {
  TempFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(data_path("sharded")))
    std::filesystem::copy(file.path(), folder / file.path().filename().string());
  ASSERT_TRUE(Safetensors::open(folder.path()));
  const std::string index = read_file(folder / "model.safetensors.index.json");

  write_file(folder / "model.safetensors.index.json", R"({"weight_map":{"ghost":"model-00001-of-00002.safetensors"}})");
  expect_error(Safetensors::open(folder.path()), ErrorCode::kBadData,
               "tensor 'ghost' is not in 'model-00001-of-00002.safetensors'");

  write_file(folder / "model.safetensors.index.json", index);
  write_file(folder / "model-00002-of-00002.safetensors", "short");
  expect_error(Safetensors::open(folder.path()), ErrorCode::kBadData, "model-00002-of-00002.safetensors: too short");
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  expect_error(Safetensors::open(folder.path()), ErrorCode::kNotFound,
               "the shard 'model-00002-of-00002.safetensors' is missing");
}

TEST(ShardIndex, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\\\b.safetensors", "..",
                           ".x.safetensors", "", "x.bin", "a\\u0000.safetensors"}) {
    auto text = fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", name);
    expect_error(parse_shard_index(text, "index.json"), ErrorCode::kBadData, "index.json: tensor 'w' is mapped to",
                 name);
  }
  EXPECT_TRUE(parse_shard_index(R"({"weight_map":{"w":"a.safetensors"}})", "index.json"));
}

TEST(ShardIndex, RefusesWhatIsNoIndex) {
  constexpr auto kBad = ErrorCode::kBadData;
  expect_error(parse_shard_index("", "i"), kBad, "not valid JSON");
  expect_error(parse_shard_index("[]", "i"), kBad, "expected a JSON object");
  expect_error(parse_shard_index("{}", "i"), kBad, "'weight_map' is missing");
  expect_error(parse_shard_index(R"({"weight_map":{}})", "i"), kBad, "'weight_map' is empty");
  expect_error(parse_shard_index(R"({"weight_map":[]})", "i"), kBad, "'weight_map' should be an object");
  expect_error(parse_shard_index(R"({"weight_map":{"w":1}})", "i"), kBad, "'w' is not mapped to a file name");
  expect_error(parse_shard_index(R"({"weight_map":{"":"a.safetensors"}})", "i"), kBad, "empty name");
  expect_error(parse_shard_index(R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})", "i"), kBad, "twice");
  expect_error(parse_shard_index(std::string(1000, '['), "i"), ErrorCode::kExhausted, "nested deeper");
}

}  // namespace
}  // namespace godwit
