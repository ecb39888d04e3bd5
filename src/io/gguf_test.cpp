#include "io/gguf.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

TEST(Gguf, ReadsWhatTheReferencePackageWrites) {
  for (auto [name, alignment] : {std::pair("types.gguf", 32u), std::pair("aligned.gguf", 256u)}) {
    auto file = Gguf::open(data_path(name));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->alignment(), alignment);
    expect_tensors(file->tensors(), "types_gguf.json");
    for (const TensorEntry& entry : file->tensors()) EXPECT_EQ(file->find(entry.name), &entry);
    EXPECT_EQ(file->find("plain"), nullptr);
    EXPECT_EQ(file->find("zzz"), nullptr);
    EXPECT_EQ(file->metadata().items().front().key, "general.architecture");
    EXPECT_EQ(file->string("general.architecture").value(), "llama");
  }
}

TEST(Gguf, MetadataOfEveryType) {
  auto file = Gguf::open(data_path("types.gguf")).value();
  EXPECT_EQ(file.u64("test.u8").value(), 250u);
  EXPECT_EQ(file.i64("test.i8").value(), -5);
  EXPECT_EQ(file.u64("test.u16").value(), 65000u);
  EXPECT_EQ(file.i64("test.i16").value(), -30000);
  EXPECT_EQ(file.u64("test.u32").value(), 4000000000u);
  EXPECT_EQ(file.i64("test.i32").value(), -2000000000);
  EXPECT_EQ(file.f64("test.f32").value(), 0.5);
  EXPECT_EQ(file.u64("test.u64").value(), (uint64_t{1} << 63) + 1);
  EXPECT_EQ(file.i64("test.i64").value(), -(int64_t{1} << 62));
  EXPECT_EQ(file.f64("test.f64").value(), 1e-300);
  EXPECT_TRUE(file.boolean("test.bool").value());
  EXPECT_EQ(file.string("test.string").value(), "Pfuhlschnepfe – 斑尾塍鷸 🪶");
  auto strings = file.strings("test.strings").value();
  EXPECT_EQ(std::vector<std::string>(strings.begin(), strings.end()), (std::vector<std::string>{"", "a", "é", "▁the"}));
  EXPECT_EQ(file.integers("test.ints").value(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(file.floats("test.floats").value(), (std::vector<float>{0.25f, -1.5f}));
  EXPECT_EQ(*file.metadata().value("test.bools"), GgufValue(GgufArray(std::vector<bool>{true, false, true})));
}

TEST(Gguf, GettersConvertOnlyWhatFits) {
  auto file = Gguf::open(data_path("types.gguf")).value();
  EXPECT_EQ(file.f64("test.i8").value(), -5.0);
  EXPECT_EQ(file.i64("test.u32").value(), 4000000000);
  const GgufMetadata& metadata = file.metadata();
  EXPECT_FALSE(metadata.find<std::string>("test.absent").value().has_value());
  EXPECT_EQ(metadata.get_or<uint64_t>("test.absent", 3).value(), 3u);
  EXPECT_EQ(metadata.get_or<uint64_t>("test.u8", 3).value(), 250u);

  constexpr auto kBad = ErrorCode::kBadData;
  expect_error(file.string("test.absent"), ErrorCode::kNotFound,
               "types.gguf: the metadata key 'test.absent' is missing");
  expect_error(file.u64("test.i8"), kBad, "'test.i8' should be a non-negative integer, but is i8");
  expect_error(file.i64("test.u64"), kBad, "'test.u64' should be an integer, but is u64");
  expect_error(file.u64("test.f32"), kBad, "but is f32");
  expect_error(file.u64("test.bool"), kBad, "but is bool");
  expect_error(file.boolean("test.u8"), kBad, "'test.u8' should be true or false, but is u8");
  expect_error(file.f64("test.string"), kBad, "'test.string' should be a number, but is string");
  expect_error(file.string("test.ints"), kBad, "should be a string, but is array of i32");
  expect_error(file.strings("test.string"), kBad, "should be an array of strings, but is string");
  expect_error(file.strings("test.ints"), kBad, "but is array of i32");
  expect_error(file.integers("test.floats"), kBad, "but is array of f32");
  expect_error(file.floats("test.strings"), kBad, "should be an array of numbers, but is array of string");
  expect_error(metadata.get_or<std::string>("test.u8", "x"), kBad, "should be a string");
}

TEST(Gguf, ReadsVersion2AndScalars) {
  std::string bytes = Bytes()
                          .text("GGUF")
                          .u32(2)
                          .u64(1)
                          .u64(0)
                          .string("scalar")
                          .u32(0)
                          .u32(0)  // f32
                          .u64(0)
                          .align(32)
                          .fill(4, 1);
  auto file = parse_copy<Gguf>(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(file->tensors()[0].bytes.size(), 4u);
}

TEST(Gguf, EntriesOutliveTheObjectThroughItsOwner) {
  std::shared_ptr<const void> owner;
  TensorEntry entry;
  {
    auto file = Gguf::open(data_path("types.gguf")).value();
    auto moved = std::move(file);
    Gguf copy = moved;
    owner = copy.owner();
    entry = *copy.find("plain.i32");
  }
  int32_t last = 0;
  std::memcpy(&last, entry.bytes.data() + 24, 4);
  EXPECT_EQ(last, 6);
}

TEST(GgufMetadata, KeepsOrderAndReplacesInPlace) {
  GgufMetadata metadata;
  ASSERT_TRUE(metadata.set("b", uint32_t{1}));
  ASSERT_TRUE(metadata.set("a", "text"));
  ASSERT_TRUE(metadata.set("c", true));
  ASSERT_TRUE(metadata.set("b", 2.5f));
  EXPECT_TRUE(metadata.erase("a"));
  EXPECT_FALSE(metadata.erase("a"));
  ASSERT_TRUE(metadata.set("a", GgufArray(std::vector<std::string>{"x"})));
  ASSERT_EQ(metadata.items().size(), 3u);
  EXPECT_EQ(metadata.items()[0], (GgufMetadata::Item{"b", 2.5f}));
  EXPECT_EQ(metadata.items()[1], (GgufMetadata::Item{"c", true}));
  EXPECT_EQ(gguf_type_name(metadata.items()[2].value), "array of string");
  EXPECT_TRUE(metadata.get<bool>("c").value());
  expect_error(metadata.set("", true), ErrorCode::kInvalidArgument, "empty name");
  expect_error(metadata.set("a\nb", true), ErrorCode::kInvalidArgument, "control character");
}

}  // namespace
}  // namespace godwit
