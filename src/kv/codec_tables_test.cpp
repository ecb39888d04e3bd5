// Side files of codecs: what is written is read, and what does not fit is refused by name.
#include "kv/codec_tables.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "kv/codec.h"

namespace godwit {
namespace {

std::string path_of(const char* name) {
  return testing::TempDir() + name;
}

std::string million_file(int64_t heads, int64_t head_dim, uint32_t width, float number = 0.5f) {
  const std::string path = path_of("codec_tables.gguf");
  const auto numbers = static_cast<size_t>(heads * head_dim * 256);
  EXPECT_TRUE(write_codec_tables("million", "a test", {{"width", width}},
                                 {{"k", {heads, head_dim, 256}, std::vector<float>(numbers, number)},
                                  {"v", {heads, head_dim, 256}, std::vector<float>(numbers, -number)}},
                                 path));
  return path;
}

std::string refusal(const std::string& spec, int head_dim = 64) {
  auto format = make_kv_format(spec, head_dim);
  EXPECT_FALSE(format) << spec;
  return format ? "" : format.error().message;
}

TEST(CodecTables, AreReadAsTheyWereWritten) {
  const std::string path = million_file(6, 64, 2);
  const CodecTables tables = CodecTables::open("million", path).value();
  EXPECT_EQ(tables.integer("width", 1, 16).value(), 2);
  EXPECT_EQ(tables.numbers("v", {64, 256}).value(), std::vector<float>(6 * 64 * 256, -0.5f));
  const KvFormat format = make_kv_format("million:last=0,file=" + path, 64).value();
  EXPECT_EQ(format.page_bytes(), 12u + 2 * 64 * 32);
  EXPECT_TRUE(check_codec_tables(format, {.layers = 3, .kv_heads = 2}, "million"));
  const auto wrong = check_codec_tables(format, {.layers = 2, .kv_heads = 2}, "million:x");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("'million:x' was fitted to 6 KV heads"), std::string::npos);
  EXPECT_EQ(make_kv_format("million:file=" + million_file(1, 64, 4), 64)->page_bytes(), 12u + 2 * 64 * 16);
}

TEST(CodecTables, WhatDoesNotFitIsRefused) {
  EXPECT_NE(refusal("million:file=" + path_of("nothing.gguf")).find("nothing.gguf"), std::string::npos);
  const std::string path = million_file(2, 64, 2);
  EXPECT_NE(refusal("million:file=" + path, 128).find("'k' is [2, 64, 256]"), std::string::npos);
  EXPECT_NE(refusal("think:file=" + path).find("made for KV codec 'million', not 'think'"), std::string::npos);
  EXPECT_NE(refusal("million:file=" + million_file(2, 64, 0)).find("width is 0"), std::string::npos);
  EXPECT_NE(refusal("million:file=" + million_file(2, 64, 3)).find("do not fit heads of 64"), std::string::npos);
  EXPECT_NE(refusal("million:file=" + million_file(2, 64, 2, NAN)).find("not finite"), std::string::npos);
  const std::string squares = path_of("codec_tables_think.gguf");
  ASSERT_TRUE(write_codec_tables("think", "a test", {}, {{"queries", {1, 64}, std::vector<float>(64, -1)}}, squares));
  EXPECT_NE(refusal("think:file=" + squares).find("negative"), std::string::npos);
  std::ofstream(path_of("short.gguf"), std::ios::binary) << "GGUF\3";
  EXPECT_NE(refusal("million:file=" + path_of("short.gguf")).find("short.gguf"), std::string::npos);
}

}  // namespace
}  // namespace godwit
