#include "io/gguf_writer.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/result.h"
#include "io/gguf.h"
#include "io/test_files.h"

namespace godwit {
namespace {

using namespace io_test;

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 37 + 11);
  return out;
}

GgufWriter sample() {
  GgufWriter writer;
  const std::pair<const char*, GgufValue> values[] = {
      {"k.u8", uint8_t{200}},
      {"k.i8", int8_t{-100}},
      {"k.u16", uint16_t{60000}},
      {"k.i16", int16_t{-30000}},
      {"k.u32", uint32_t{4000000000}},
      {"k.i32", int32_t{-5}},
      {"k.f32", 0.1f},
      {"k.bool", true},
      {"k.string", std::string("a\0b", 3)},
      {"k.u64", uint64_t{1} << 63},
      {"k.i64", int64_t{-1} << 40},
      {"k.f64", 0.1},
      {"k.u8s", GgufArray(std::vector<uint8_t>{1, 2})},
      {"k.i8s", GgufArray(std::vector<int8_t>{-1})},
      {"k.u16s", GgufArray(std::vector<uint16_t>{1})},
      {"k.i16s", GgufArray(std::vector<int16_t>{-1})},
      {"k.u32s", GgufArray(std::vector<uint32_t>{})},
      {"k.i32s", GgufArray(std::vector<int32_t>{1, 2, 3})},
      {"k.f32s", GgufArray(std::vector<float>{1.5f})},
      {"k.bools", GgufArray(std::vector<bool>{true, false})},
      {"k.strings", GgufArray(std::vector<std::string>{"", "xyz", "\xff"})},
      {"k.u64s", GgufArray(std::vector<uint64_t>{1})},
      {"k.i64s", GgufArray(std::vector<int64_t>{-1})},
      {"k.f64s", GgufArray(std::vector<double>{2.5})},
  };
  for (const auto& [key, value] : values) EXPECT_TRUE(writer.metadata().set(key, value));
  return writer;
}

TEST(GgufWriter, WhatIsReadIsWhatWasWritten) {
  for (uint32_t alignment : {0u, 8u, 64u, 4096u}) {
    GgufWriter writer = sample();
    if (alignment != 0) {
      ASSERT_TRUE(writer.metadata().set("general.alignment", alignment));
    }
    std::vector<std::vector<std::byte>> data;
    for (const DTypeInfo& info : all_dtypes()) data.push_back(pattern(3 * static_cast<size_t>(info.block_bytes)));
    for (const DTypeInfo& info : all_dtypes()) {
      const auto& bytes = data[static_cast<size_t>(info.dtype)];
      auto name = fmt::format("t.{}", info.name);
      if (info.gguf_id % 2 == 0) {
        ASSERT_TRUE(writer.add(name, info.dtype, {3, info.block_elements}, bytes));
        continue;
      }
      ASSERT_TRUE(
          writer.add(name, info.dtype, {3, 1, 1, info.block_elements}, [&](const GgufWriter::Sink& sink) -> Status {
            GODWIT_TRY(sink(std::span(bytes).first(1)));
            return sink(std::span(bytes).subspan(1));
          }));
    }
    TempFolder folder;
    ASSERT_TRUE(writer.write(folder / "out.gguf"));
    EXPECT_EQ(std::filesystem::file_size(folder / "out.gguf"), writer.file_bytes().value());

    auto file = Gguf::open(folder / "out.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), 3u);
    auto want = writer.metadata().items(), have = file->metadata().items();
    ASSERT_EQ(have.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(have[i], want[i]) << want[i].key;
    ASSERT_EQ(file->tensors().size(), all_dtypes().size());
    for (size_t i = 0; i < data.size(); ++i) {
      const TensorEntry& entry = file->tensors()[i];
      const DTypeInfo& info = all_dtypes()[i];
      EXPECT_EQ(entry.dtype, info.dtype);
      EXPECT_EQ(entry.shape.front(), 3);
      EXPECT_EQ(entry.shape.back(), info.block_elements);
      EXPECT_TRUE(std::equal(entry.bytes.begin(), entry.bytes.end(), data[i].begin(), data[i].end()));
    }
  }
}

TEST(GgufWriter, CopyOfAReferenceFileIsByteForByteTheSame) {
  for (const char* name : {"types.gguf", "aligned.gguf"}) {
    auto file = Gguf::open(data_path(name)).value();
    GgufWriter writer;
    for (const auto& item : file.metadata().items()) ASSERT_TRUE(writer.metadata().set(item.key, item.value));
    for (const TensorEntry& entry : file.tensors())
      ASSERT_TRUE(writer.add(entry.name, entry.dtype, entry.shape, entry.bytes));
    std::string out;
    ASSERT_TRUE(writer.write([&](std::span<const std::byte> piece) -> Status {
      out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return {};
    }));
    EXPECT_EQ(out, read_file(data_path(name)));
  }
}

TEST(GgufWriter, RefusesWhatNoReaderWouldTake) {
  GgufWriter writer;
  auto bytes = pattern(16);
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  ASSERT_TRUE(writer.add("w", DType::kF32, {4}, bytes));
  expect_error(writer.add("w", DType::kF32, {4}, bytes), kInvalid, "tensor 'w': added twice");
  expect_error(writer.add("v", DType::kF32, {5}, bytes), kInvalid, "'v' of f32 [5] takes 20 bytes, but 16 were given");
  expect_error(writer.add("v", DType::kQ4_0, {16}, bytes), kInvalid, "not whole q4_0 blocks");
  expect_error(writer.add("v", DType::kF32, {0, 4}, std::span<const std::byte>()), kInvalid, "has no elements");
  expect_error(writer.add("v", DType::kF32, {-4}, bytes), kInvalid, "negative");
  expect_error(writer.add("v", DType::kF32, {}, bytes), kInvalid, "0 dimensions");
  expect_error(writer.add("v", DType::kF32, {1, 1, 1, 1, 4}, bytes), kInvalid, "5 dimensions");
  expect_error(writer.add("", DType::kF32, {4}, bytes), kInvalid, "empty name");
  expect_error(writer.add("v", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, bytes), kInvalid, "more elements");
  ASSERT_TRUE(writer.metadata().set("general.alignment", uint32_t{7}));
  TempFolder folder;
  expect_error(writer.write(folder / "x.gguf"), ErrorCode::kBadData, "alignment of 7");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, FailureLeavesTheOldFileAndNoOther) {
  TempFolder folder;
  write_file(folder / "out.gguf", "old");
  auto expect_untouched = [&] {
    EXPECT_EQ(read_file(folder / "out.gguf"), "old");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  };
  auto bytes = pattern(16);
  auto attempt = [&](GgufWriter::Source source) {
    GgufWriter writer;
    EXPECT_TRUE(writer.add("w", DType::kF32, {4}, std::move(source)));
    return writer.write(folder / "out.gguf");
  };
  expect_error(attempt([&](const auto& sink) { return sink(std::span(bytes).first(8)); }), ErrorCode::kInvalidArgument,
               "tensor 'w' takes 16 bytes, but 8 were given");
  expect_untouched();
  expect_error(attempt([&](const auto& sink) -> Status {
                 for (int i = 0; i < 1000; ++i) GODWIT_TRY(sink(bytes));
                 return {};
               }),
               ErrorCode::kInvalidArgument, "tensor 'w' takes 16 bytes, but more were given");
  expect_untouched();
  expect_error(attempt([](const auto&) -> Status { return fail(ErrorCode::kCancelled, "stopped"); }),
               ErrorCode::kCancelled, "stopped");
  expect_untouched();
  ASSERT_TRUE(attempt([&](const auto& sink) { return sink(bytes); }));
  EXPECT_TRUE(Gguf::open(folder / "out.gguf"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(GgufWriter, DiskErrorsAreReported) {
  GgufWriter writer;
  auto bytes = pattern(1 << 20);
  ASSERT_TRUE(writer.add("w", DType::kF32, {1 << 18}, bytes));
  TempFolder folder;
  expect_error(writer.write(folder / "no" / "out.gguf"), ErrorCode::kIo, "cannot create: No such file");
  expect_error(writer.write(folder.path()), ErrorCode::kInvalidArgument, "is not a regular file");
  expect_error(writer.write("/dev/full"), ErrorCode::kInvalidArgument, "is not a regular file");

  // A limit on the size of files fails the same calls in the same way as a full disk.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{1 << 16, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  auto status = writer.write(folder / "out.gguf");
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  expect_error(status, ErrorCode::kIo, "out.gguf: cannot");
  expect_error(status, ErrorCode::kIo, "nothing was written");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace godwit
