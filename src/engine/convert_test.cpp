// Models converted to every weight type: they load, they get worse with fewer bits, and nothing else of them changes.
#include "engine/convert.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/test_engine.h"
#include "io/gguf_writer.h"

namespace godwit {
namespace {

using namespace engine_test;
using model_test::text_of;

// tests/data/models/llama-linear.gguf widened to rows of 256, which K types need, with random weights.
class WideModel {
 public:
  WideModel() {
    const Gguf narrow = value_of(Gguf::open(model_path("llama-linear.gguf")));
    GgufWriter writer;
    GgufMetadata& meta = writer.metadata();
    auto set = [&](std::string_view key, GgufValue value) { EXPECT_TRUE(meta.set(key, std::move(value)).has_value()); };
    for (const auto& item : narrow.metadata().items()) set(item.key, item.value);
    for (auto [key, value] : {std::pair<const char*, uint32_t>{"embedding_length", 256},
                              {"feed_forward_length", 512},
                              {"attention.head_count", 8},
                              {"attention.head_count_kv", 4},
                              {"attention.key_length", 32},
                              {"attention.value_length", 32},
                              {"rope.dimension_count", 32}})
      set(std::string("llama.") + key, value);
    set("general.file_type", uint32_t{1});
    std::mt19937 random(3);
    std::vector<std::vector<float>> values;
    auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      size_t count = 1;
      for (int64_t n : shape) count *= static_cast<size_t>(n);
      auto& data = values.emplace_back(count, 1.0F);
      if (shape.size() > 1)
        for (float& v : data) v = static_cast<float>(static_cast<double>(random()) / 4294967295.0 - 0.5) * 0.2F;
      EXPECT_TRUE(writer.add(name, DType::kF32, shape, std::as_bytes(std::span(data))).has_value());
    };
    values.reserve(64);
    add("token_embd.weight", {320, 256});
    add("output_norm.weight", {256});
    for (const std::string blk : {"blk.0.", "blk.1."}) {
      add(blk + "attn_norm.weight", {256});
      add(blk + "ffn_norm.weight", {256});
      add(blk + "attn_q.weight", {256, 256});
      add(blk + "attn_k.weight", {128, 256});
      add(blk + "attn_v.weight", {128, 256});
      add(blk + "attn_output.weight", {256, 256});
      add(blk + "ffn_gate.weight", {512, 256});
      add(blk + "ffn_up.weight", {512, 256});
      add(blk + "ffn_down.weight", {256, 512});
    }
    auto status = writer.write(path());
    EXPECT_TRUE(status.has_value()) << status.error().message;
  }
  std::filesystem::path path() const { return folder_ / "wide.gguf"; }

 private:
  io_test::TempFolder folder_;
};

std::vector<TokenScore> scores_of(const std::filesystem::path& path, std::span<const TokenId> tokens) {
  EngineOptions options;
  options.model = path.string();
  options.threads = 2;
  options.kv_codec = "f32";
  Session session = open(options).start();
  return value_of(session.score(tokens));
}

double distance(std::span<const TokenScore> a, std::span<const TokenScore> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(std::isfinite(a[i].logprob));
    sum += std::abs(static_cast<double>(a[i].logprob) - b[i].logprob);
  }
  return sum / static_cast<double>(a.size());
}

TEST(Convert, EveryTypeLoadsAndFewerBitsAreWorse) {
  const WideModel wide;
  io_test::TempFolder folder;
  const ModelSource source = value_of(ModelSource::open(wide.path()));
  const auto tokens = prompt(60);
  const auto exact = scores_of(wide.path(), tokens);
  std::map<DType, double> error;
  for (const DTypeInfo& type : all_dtypes()) {
    if (type.dtype == DType::kI32) continue;
    SCOPED_TRACE(type.name);
    const auto path = folder / std::string(type.name);
    ConvertOptions options;
    options.dtype = type.dtype;
    options.threads = 2;
    double share = 0;
    options.on_progress = [&](double now) {
      EXPECT_GE(now, share);
      share = now;
    };
    const ConvertReport report = value_of(convert_model(source, options, path));
    EXPECT_EQ(share, 1.0);
    EXPECT_TRUE(report.exceptions.empty());
    EXPECT_EQ(report.bytes, std::filesystem::file_size(path));
    const ModelSource converted = value_of(ModelSource::open(path));
    EXPECT_EQ(text_of(converted.config()), text_of(source.config()));
    EXPECT_EQ(value_of(converted.tensor("blk.0.attn_q.weight"))[0]->dtype, type.dtype);
    EXPECT_EQ(value_of(converted.tensor("blk.0.attn_norm.weight"))[0]->dtype, DType::kF32);
    EXPECT_FALSE(converted.gguf()->metadata().has("general.file_type")) << "it would name the old type";
    error[type.dtype] = distance(scores_of(path, tokens), exact);
  }
  EXPECT_EQ(error[DType::kF32], 0);
  const DType falling[] = {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                           DType::kQ6_K, DType::kQ8_0, DType::kF16};
  for (size_t i = 1; i < std::size(falling); ++i)
    EXPECT_GT(error[falling[i - 1]], error[falling[i]])
        << dtype_name(falling[i - 1]) << " and " << dtype_name(falling[i]);
  EXPECT_GT(error[DType::kQ4_0], error[DType::kQ5_0]);
}

TEST(Convert, EmbeddingsMayHaveATypeOfTheirOwn) {
  const WideModel wide;
  io_test::TempFolder folder;
  ConvertOptions options;
  options.dtype = DType::kQ4_K;
  options.embedding_dtype = DType::kQ8_0;
  options.name = "renamed";
  value_of(convert_model(value_of(ModelSource::open(wide.path())), options, folder / "out"));
  const ModelSource converted = value_of(ModelSource::open(folder / "out"));
  EXPECT_EQ(value_of(converted.tensor("token_embd.weight"))[0]->dtype, DType::kQ8_0);
  EXPECT_EQ(value_of(converted.tensor("blk.1.ffn_down.weight"))[0]->dtype, DType::kQ4_K);
  EXPECT_EQ(value_of(converted.gguf()->string("general.name")), "renamed");
}

TEST(Convert, RowsThatDoNotFitAreReported) {
  io_test::TempFolder folder;
  ConvertOptions options;
  options.dtype = DType::kQ4_K;
  for (const char* model : {"qwen3", "qwen3.gguf"}) {
    const ConvertReport report =
        value_of(convert_model(value_of(ModelSource::open(model_path(model))), options, folder / "out"));
    EXPECT_FALSE(report.exceptions.empty()) << model;
    for (const auto& [name, type] : report.exceptions) EXPECT_EQ(type, DType::kQ8_0) << name;  // rows of 64 or 128
    EXPECT_TRUE(ModelSource::open(folder / "out").has_value());
  }
}

TEST(Convert, AFolderReadBackIsTheSameModel) {
  for (const char* model :
       {"llama", "llama-linear", "llama-dynamic", "llama-yarn", "llama3", "mistral", "mixtral", "qwen2", "qwen2-window",
        "qwen3", "qwen3-moe", "qwen3-moe-mixed", "gemma2", "gemma3", "phi3", "phi3-longrope"}) {
    SCOPED_TRACE(model);
    io_test::TempFolder folder;
    const ModelSource source = value_of(ModelSource::open(model_path(model)));
    ConvertOptions options;
    options.dtype = DType::kF32;
    value_of(convert_model(source, options, folder / "out.gguf"));
    const ModelSource back = value_of(ModelSource::open(folder / "out.gguf"));
    // GGUF files of the llama architecture hold Q and K for pairwise rotation, norms with their one added, frequencies
    // with llama3's rule applied, and YaRN's and longrope's magnitude instead of what it is made of.
    ModelConfig want = source.config(), got = back.config();
    for (ModelConfig* c : {&want, &got}) {
      c->rope_style = RopeStyle::kHalves;
      c->norm_plus_one = false;
    }
    ASSERT_EQ(want.ropes.size(), got.ropes.size());
    for (size_t i = 0; i < want.ropes.size(); ++i) {
      for (int64_t context : {int64_t{32}, want.context_length}) {
        const RopeTable a = make_rope_table(want.ropes[i], want, context),
                        b = make_rope_table(got.ropes[i], got, context);
        EXPECT_FLOAT_EQ(a.magnitude, b.magnitude);
        ASSERT_EQ(a.inv_freq.size(), b.inv_freq.size());
        for (size_t f = 0; f < a.inv_freq.size(); ++f) EXPECT_FLOAT_EQ(a.inv_freq[f], b.inv_freq[f]) << f;
      }
    }
    want.ropes.clear();
    got.ropes.clear();
    EXPECT_EQ(text_of(got), text_of(want));
  }
}

TEST(Convert, RefusesToOverwriteItsSource) {
  const WideModel wide;
  expect_error(convert_model(value_of(ModelSource::open(wide.path())), {}, wide.path()), ErrorCode::kInvalidArgument,
               "the model itself");
  EXPECT_TRUE(ModelSource::open(wide.path()).has_value());
  auto unwritable = convert_model(value_of(ModelSource::open(wide.path())), {}, "/no/such/folder/out.gguf");
  ASSERT_FALSE(unwritable.has_value());
  EXPECT_NE(unwritable.error().message.find("/no/such/folder"), std::string::npos);
}

// Settings that contradict the tensors must not make the converter read past them.
TEST(Convert, HeadsThatAreNoWholeNumberOfRows) {
  ModelCopy copy("llama");
  copy.patch("config.json", R"({"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 40})");
  io_test::TempFolder folder;
  expect_error(convert_model(value_of(ModelSource::open(copy.path())), {}, folder / "out"), ErrorCode::kBadData,
               "no whole heads of 40");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

}  // namespace
}  // namespace godwit
