// For tests: every KV codec, as the tiny qwen3 model can have it.
#pragma once

#include <cmath>

#include <unistd.h>

#include "engine/test_engine.h"
#include "kv/codec.h"
#include "kv/codec_tables_testing.h"

namespace godwit::engine_test {

inline std::vector<std::string> every_codec() {
  std::vector<std::string> specs;
  for (const KvCodecRow* codec : all_kv_codecs()) {
    std::string name(codec->info.name);
    if (name == "kivi" || name == "gear") name += ":k=4,v=4";  // their 2 bits want heads of 64
    if (name == "kvtuner") name += ":bits=84-44";              // of the model's two layers
    if (name == "million") {
      const std::string path = testing::TempDir() + fmt::format("million{}.gguf", getpid());
      std::vector<float> book(size_t{2} * 32 * 256);
      for (size_t i = 0; i < book.size(); ++i) book[i] = std::sin(static_cast<float>(i));
      EXPECT_TRUE(write_codec_tables("million", "a test", {{"width", 2}},
                                     {{"k", {2, 32, 256}, book}, {"v", {2, 32, 256}, book}}, path));
      name += ":file=" + path;
    }
    if (name == "xquant") {
      const std::string path = testing::TempDir() + fmt::format("xquant{}.gguf", getpid());
      EXPECT_TRUE(write_xquant_file({.heads = 2, .head_dim = 32, .rotary_dim = 32}, path));
      name += ":file=" + path;
    }
    specs.push_back(name);
  }
  return specs;
}

}  // namespace godwit::engine_test
