// Side files of codecs: what is written is read, and what does not fit is refused by name.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "kv/codec.h"
#include "kv/codec_tables_testing.h"

namespace godwit {
namespace {

std::string path_of(const char* name) {
  return testing::TempDir() + name;
}

std::string million_file(int64_t heads, int64_t head_dim, uint32_t width, float number = 0.5f) {
  std::string path = path_of("codec_tables.gguf");
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

TEST(CodecTables, BasesOfXquant) {
  const auto file = [](const XquantFile& made) {
    const std::string path = path_of("codec_tables_xquant.gguf");
    EXPECT_TRUE(write_xquant_file(made, path));
    return "xquant:file=" + path;
  };
  const KvFormat format = make_kv_format(file({.heads = 6}), 64).value();
  EXPECT_EQ(format.page_bytes(), 12u + 68 + 2 * (64 * 4 + 32 * 32 + 32 * 16));
  EXPECT_TRUE(check_codec_tables(format, {.layers = 3, .kv_heads = 2}, "xquant"));
  EXPECT_FALSE(check_codec_tables(format, {.layers = 4, .kv_heads = 2}, "xquant"));
  EXPECT_EQ(make_kv_format(file({}) + ",rank=0.25,rest=0,k=8,v=2", 64)->page_bytes(),
            12u + 68 + 2 * 16 * 4 + 16 * 64 + 16 * 16);
  const auto refused = [](const std::string& spec, std::string_view mention, int head_dim = 64) {
    const std::string text = refusal(spec, head_dim);
    EXPECT_NE(text.find(mention), std::string::npos) << text;
  };
  refused("xquant", "godwit tune xquant");
  refused(file({.factor = 1.01f}), "not orthonormal");
  refused(file({.rotary_dim = 66}), "rotary_dim is 66");
  refused(file({.rotary_dim = 33}), "must be even");
  refused(file({.pairs = 2}), "rope_pairs is 2");
  refused(file({}), "'k' is [1, 64, 64]", 128);
  refused(file({}), "multiple of 16; this model's is 72", 72);
  refused(file({}), "up to 256 numbers", 512);
  refused(file({}) + ",k=3", "k of KV codec 'xquant' is 3; it can be 2, 4, 8, 16");
  refused(file({}) + ",rest=8", "it can be 0, 2, 4");
  refused(file({}) + ",rank=2", "from 0 to 1");
  refused(file({}) + ",last=100", "multiple of 64");
  refused("xquant:file=" + million_file(2, 64, 2), "made for KV codec 'million', not 'xquant'");
}

}  // namespace
}  // namespace godwit
