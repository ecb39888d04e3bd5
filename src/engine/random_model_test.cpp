#include "engine/random_model.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "engine/vocabulary.h"
#include "model/test_models.h"
#include "tensor/quant.h"
#include <godwit/engine.h>

namespace godwit {
namespace {

using io_test::expect_error;
using model_test::value_of;

class RandomModel : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& shape, DType dtype, uint64_t seed = 0, int threads = 2) {
    const std::filesystem::path path = folder_.path() / "model.gguf";
    ConvertOptions options;
    options.dtype = dtype;
    options.threads = threads;
    report_ = value_of(write_random_model(value_of(find_shape(shape)), seed, options, path));
    return path;
  }
  io_test::TempFolder folder_;
  ConvertReport report_;
};

TEST(Shapes, HaveThePublishedNumberOfParameters) {
  const std::pair<const char*, uint64_t> published[] = {
      {"llama-3.2-1b", 1235814400},   {"llama-3.2-3b", 3212749824},     {"llama-3.1-8b", 8030261248},
      {"qwen2.5-0.5b", 494032768},    {"qwen2.5-7b", 7615616512},       {"qwen3-0.6b", 596049920},
      {"llama-3.1-70b", 70553706496}, {"llama-3.1-405b", 405853388800}, {"qwen2.5-72b", 72706203648},
      {"qwen3-32b", 32762123264},     {"mixtral-8x7b", 46702792704},    {"qwen3-8b", 8190735360},
      {"mistral-7b", 7248023552},     {"gemma-2-2b", 2614341888},       {"qwen3-30b-a3b", 30532122624}};
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(shape_parameters(value_of(find_shape(name))), parameters) << name;
}

TEST(Shapes, AreListedWhenTheNameIsUnknown) {
  expect_error(find_shape("llama-9"), ErrorCode::kInvalidArgument, "'llama-9'");
  expect_error(find_shape("llama-9"), ErrorCode::kInvalidArgument, "mixtral-small");
}

TEST_F(RandomModel, ReadsBackAsItsShape) {
  const ModelShape shape = value_of(find_shape("llama-tiny"));
  const ModelSource source = value_of(ModelSource::open(write("llama-tiny", DType::kQ4_0)));
  const ModelConfig& c = source.config();
  EXPECT_EQ(c.family, "llama");
  EXPECT_EQ(c.dim, shape.config.dim);
  EXPECT_EQ(c.ffn_dim, shape.config.ffn_dim);
  EXPECT_EQ(c.heads, shape.config.heads);
  EXPECT_EQ(c.kv_heads, shape.config.kv_heads);
  EXPECT_EQ(c.head_dim, shape.config.head_dim);
  EXPECT_EQ(c.layers.size(), shape.config.layers.size());
  EXPECT_EQ(c.vocab_size, shape.config.vocab_size);
  EXPECT_EQ(source.gguf()->tensors().size(), shape_tensors(shape).size());
  EXPECT_EQ(report_.weights, shape_parameters(shape));
  EXPECT_TRUE(report_.exceptions.empty());
}

// What a family has beyond Llama (biases, norms of heads, experts, windows) is in the file, too.
TEST_F(RandomModel, OfEveryFamilyReadsBackAndAnswers) {
  for (const std::string& name : shape_names()) {
    SCOPED_TRACE(name);
    ModelShape shape = value_of(find_shape(name));
    ModelConfig& c = shape.config;
    c.layers.resize(2), c.vocab_size = 512;  // the rest as it is, but smaller
    const int group = c.heads / c.kv_heads;
    c.kv_heads = std::min(c.kv_heads, 2), c.heads = c.kv_heads * group;
    c.dim = std::min<int64_t>(c.dim, 256), c.ffn_dim = 128, c.experts = std::min(c.experts, 16);
    if (c.experts > 0) c.expert_ffn_dim = 64;
    if (c.embedding_scale != 1) c.embedding_scale = std::sqrt(static_cast<float>(c.dim));
    const std::filesystem::path path = folder_.path() / (name + ".gguf");
    ConvertOptions options;
    options.dtype = DType::kQ8_0;
    options.threads = 1;
    value_of(write_random_model(shape, 1, options, path));
    const ModelSource source = value_of(ModelSource::open(path));
    ModelConfig read = source.config();
    read.ropes = c.ropes, read.rope_style = c.rope_style;  // which a GGUF file says in its own way
    EXPECT_EQ(model_test::text_of(read), model_test::text_of(c));
    EngineOptions engine_options;
    engine_options.model = path.string(), engine_options.threads = 1, engine_options.context_tokens = 64;
    const Engine engine = value_of(Engine::open(engine_options));
    Session session = engine.start();
    ASSERT_TRUE(session.append(std::vector<TokenId>{1, 2, 3}));
    GenerateOptions answer;
    answer.max_tokens = 3, answer.ignore_eos = true;
    EXPECT_EQ(value_of(session.generate(answer)).tokens.size(), 3U);
  }
}

TEST_F(RandomModel, IsTheSameForTheSameSeedWhateverTheThreads) {
  const std::string first = io_test::read_file(write("llama-tiny", DType::kQ4_K, 7, 1));
  EXPECT_EQ(io_test::read_file(write("llama-tiny", DType::kQ4_K, 7, 3)), first);
  EXPECT_NE(io_test::read_file(write("llama-tiny", DType::kQ4_K, 8, 3)), first);
}

TEST_F(RandomModel, HasWeightsOfTheStatedScale) {
  const ModelSource source = value_of(ModelSource::open(write("llama-tiny", DType::kF32)));
  auto values = [&](const char* name) {
    const TensorEntry* entry = value_of(source.tensor(name))[0];
    std::vector<float> all(entry->bytes.size() / sizeof(float));
    dequantize(entry->dtype, entry->bytes.data(), all.data(), all.size());
    return all;
  };
  double sum = 0, squares = 0;
  const std::vector<float> down = values("blk.1.ffn_down.weight");
  for (float value : down) sum += value, squares += static_cast<double>(value) * value;
  const auto n = static_cast<double>(down.size());
  EXPECT_NEAR(std::sqrt(squares / n), 1 / std::sqrt(512.0), 0.001);
  EXPECT_NEAR(sum / n, 0, 0.001);
  for (float value : values("output_norm.weight")) EXPECT_EQ(value, 1.0F);
  EXPECT_NE(values("blk.0.ffn_down.weight"), down);
}

TEST(WeightType, IsTheFirstWhoseBlockFitsTheRows) {
  ConvertOptions options;
  options.dtype = DType::kQ4_K;
  auto type = [&](const char* name, std::vector<int64_t> shape) { return choose_weight_type(name, shape, options); };
  EXPECT_EQ(type("blk.0.ffn_down.weight", {896, 4864}).dtype, DType::kQ4_K);
  EXPECT_FALSE(type("blk.0.ffn_down.weight", {896, 4864}).exception);
  EXPECT_EQ(type("blk.0.ffn_up.weight", {4864, 896}).dtype, DType::kQ8_0);
  EXPECT_TRUE(type("blk.0.ffn_up.weight", {4864, 896}).exception);
  EXPECT_EQ(type("blk.0.ffn_up.weight", {64, 40}).dtype, DType::kF16);
  EXPECT_EQ(type("blk.0.attn_norm.weight", {896}).dtype, DType::kF32);
  EXPECT_FALSE(type("blk.0.ffn_gate_inp.weight", {8, 896}).exception);
  options.embedding_dtype = DType::kBF16;
  EXPECT_EQ(type("token_embd.weight", {1000, 896}).dtype, DType::kBF16);
}

TEST(MadeUpVocab, HasDistinctTokensThatItsMergesReach) {
  const GgufVocab vocab = made_up_vocab(70000);  // into the strings of three bytes
  EXPECT_EQ(vocab.tokens.size(), 70000U);
  EXPECT_EQ(std::set<std::string>(vocab.tokens.begin(), vocab.tokens.end()).size(), 70000U);
  EXPECT_EQ(vocab.merges.size(), 70000U - 256 - 2);
  const Tokenizer tokenizer = value_of(Tokenizer::from_gguf(vocab, "made up"));
  const auto ids = value_of(tokenizer.encode("ab \n\xff", {}));
  EXPECT_EQ(ids.front(), vocab.bos);
  EXPECT_EQ(ids[1], 256 + 256 * 'a' + 'b');
  EXPECT_EQ(tokenizer.decode(ids, false), "ab \n\xff");
}

}  // namespace
}  // namespace godwit
