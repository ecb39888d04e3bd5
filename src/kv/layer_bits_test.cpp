#include "kv/layer_bits.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "kv/codec.h"

namespace godwit {
namespace {

class LayerBitsTest : public testing::Test {
 protected:
  ~LayerBitsTest() override { std::filesystem::remove(path); }
  Result<std::vector<LayerBits>> read(std::string_view text, int layers = 2) {
    std::ofstream(path, std::ios::binary) << text;
    return read_layer_bits(path, layers);
  }
  void refused(std::string_view text, std::string_view mention) {
    const auto bits = read(text);
    ASSERT_FALSE(bits.has_value()) << text;
    EXPECT_NE(bits.error().message.find(mention), std::string::npos) << bits.error().message;
    EXPECT_NE(bits.error().message.find(path), std::string::npos) << bits.error().message;
  }
  const std::string path = fmt::format("{}layer_bits_test.{}.json", testing::TempDir(), getpid());
};

TEST_F(LayerBitsTest, ReadsWhatItSays) {
  const auto bits = read(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [2, 2]], "more": {}})");
  ASSERT_TRUE(bits.has_value()) << bits.error().message;
  EXPECT_EQ(*bits, (std::vector<LayerBits>{{8, 4}, {2, 2}}));
  EXPECT_EQ(layer_bits_text(*bits), "84-22");
  EXPECT_EQ(parse_layer_bits("84-22", 2).value(), *bits);
}

TEST_F(LayerBitsTest, RefusesHostileFiles) {
  refused("", "");
  refused("[]", "object");
  refused("{", "");
  refused(R"({"bits": [[8, 4], [2, 2]]})", "format");
  refused(R"({"format": "godwit.duo-gates.1", "gates": []})", "godwit.kv-bits.1 is what we read");
  refused(R"({"format": "godwit.kv-bits.1"})", "bits for 0 layers, but the model has 2");
  refused(R"({"format": "godwit.kv-bits.1", "bits": 8})", "bits for 0 layers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4]]})", "bits for 1 layers, but the model has 2");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [8]]})", "layer 1 are not two numbers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], ["8", 4]]})", "layer 1 are not two numbers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [4, -2]]})", "layer 1 are not two numbers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [4e9, 2]]})", "layer 1 are not two numbers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [99999999999999999999, 2]]})", "not two numbers");
  refused(R"({"format": "godwit.kv-bits.1", "bits": [[8, 4], [3, 2]]})", "layer 1 has 3 bits");
  refused(std::string(2 << 20, ' '), "");
  refused(std::string(1000, '['), "");
}

TEST_F(LayerBitsTest, RefusesOtherText) {
  for (const char* text : {"8", "84-", "84-2", "84-22-", "84 22", "8422", "x4-22", "84--22"}) {
    const auto bits = parse_layer_bits(text, 2);
    ASSERT_FALSE(bits.has_value()) << text;
    EXPECT_NE(bits.error().message.find("two digits for each"), std::string::npos) << bits.error().message;
  }
  EXPECT_FALSE(parse_layer_bits("", 2).has_value());
}

TEST_F(LayerBitsTest, FormatsOfLayersDifferInBits) {
  const auto formats = make_kv_formats("kvtuner:bits=84-42-22,last=64,first=0", 64, 3).value();
  ASSERT_EQ(formats.size(), 3U);
  const size_t scales = 4 * 64;
  EXPECT_EQ(formats[0].page_bytes(), 64U * 64 + 64 * 32 + 2 * scales);
  EXPECT_EQ(formats[1].page_bytes(), 64U * 32 + 64 * 16 + 2 * scales);
  EXPECT_EQ(formats[2].page_bytes(), 64U * 16 + 64 * 16 + 2 * scales);
  EXPECT_FALSE(formats[0].k_by_dim);
  EXPECT_TRUE(formats[1].k_by_dim);
  const auto error = [](std::string_view spec, int dim) { return make_kv_formats(spec, dim, 1).error().message; };
  EXPECT_NE(error("kvtuner", 64).find("kvtuner:file=FILE"), std::string::npos);
  EXPECT_NE(error("kvtuner:bits=84,file=x", 64).find("kvtuner:file=FILE"), std::string::npos);
  EXPECT_NE(error("kvtuner:bits=82", 96).find("multiple of 64; this model's is 96; use q8"), std::string::npos);
  EXPECT_NE(make_kv_format("kvtuner:bits=84", 64).error().message.find("another one for each layer"),
            std::string::npos);
}

}  // namespace
}  // namespace godwit
