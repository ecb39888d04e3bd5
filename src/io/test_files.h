// For the tests of this folder: bytes put together by hand, temporary folders, and checks on errors.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "io/tensor_entry.h"
#include <godwit/status.h>

namespace godwit::io_test {

inline std::filesystem::path data_path(std::string_view name) {
  return std::filesystem::path(GODWIT_TEST_DATA) / "io" / name;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "godwit_io_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Little-endian pieces of a file: Bytes().text("GGUF").u32(3).u64(0).
class Bytes {
 public:
  Bytes& u8(uint8_t value) { return raw(value); }
  Bytes& u32(uint32_t value) { return raw(value); }
  Bytes& u64(uint64_t value) { return raw(value); }
  Bytes& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  Bytes& string(std::string_view value) { return u64(value.size()).text(value); }  // as GGUF has it
  Bytes& fill(size_t count, char value = 0) {
    bytes_.append(count, value);
    return *this;
  }
  Bytes& align(size_t alignment) { return fill((alignment - bytes_.size() % alignment) % alignment); }
  operator std::string() const { return bytes_; }

 private:
  template <class T>
  Bytes& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  std::string bytes_;
};

// Parses a copy of exactly these bytes, so that a sanitizer sees any read past them.
template <class Format>
Result<Format> parse_copy(std::string_view bytes, std::string label = "file") {
  std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return Format::parse(copy, {copy.get(), bytes.size()}, std::move(label));
}

template <class T>
void expect_error(const Result<T>& result, ErrorCode code, std::string_view mention, std::string_view what = "") {
  ASSERT_FALSE(result.has_value()) << what;
  EXPECT_EQ(static_cast<int>(result.error().code), static_cast<int>(code)) << what << ": " << result.error().message;
  EXPECT_NE(result.error().message.find(mention), std::string::npos)
      << what << "\n  message: " << result.error().message << "\n  lacks:   " << mention;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << what;
  EXPECT_LT(result.error().message.size(), 1000u) << what;
}

inline std::string fnv1a(std::span<const std::byte> bytes) {
  uint64_t value = 0xCBF29CE484222325;
  for (std::byte byte : bytes) value = (value ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

// The tensors are those that the golden file lists, no more and no fewer.
inline void expect_tensors(std::span<const TensorEntry> tensors, std::string_view golden) {
  auto expected = nlohmann::json::parse(read_file(data_path(golden)));
  EXPECT_EQ(tensors.size(), expected.size());
  for (const TensorEntry& entry : tensors) {
    ASSERT_TRUE(expected.contains(entry.name)) << entry.name;
    const auto& want = expected[entry.name];
    EXPECT_EQ(dtype_name(entry.dtype), want["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, want["shape"].get<std::vector<int64_t>>()) << entry.name;
    EXPECT_EQ(fnv1a(entry.bytes), want["fnv1a"].get<std::string>()) << entry.name;
  }
}

}  // namespace godwit::io_test
