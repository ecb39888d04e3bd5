// Every number here is worked out by hand from the sizes in the comments.
#include "eval/cost.h"

#include <gtest/gtest.h>

#include "engine/random_model.h"
#include "model/test_models.h"

namespace godwit {
namespace {

using model_test::model_path;
using model_test::value_of;

CostModel cost_of(const std::filesystem::path& path, DType kv = DType::kF16) {
  const ModelSource source = value_of(ModelSource::open(path));
  return value_of(CostModel::make(source, {.dtype = kv, .head_dim = source.config().head_dim}));
}

// 2 layers; embedding 256, feed-forward 512, 4 heads of 64 on 2 KV heads; vocabulary 1024, tied. Matrices of a layer:
// 65536 + 32768 + 32768 + 65536 + 3 * 131072 = 589824; output 262144; five norms of 256 in f32.
class TinyLlama : public ::testing::Test {
 protected:
  CostModel cost(DType dtype, DType kv = DType::kF16) const {
    ConvertOptions options;
    options.dtype = dtype;
    const auto path = folder_ / "model.gguf";
    value_of(write_random_model(value_of(find_shape("llama-tiny")), 0, options, path));
    return cost_of(path, kv);
  }
  io_test::TempFolder folder_;
};

TEST_F(TinyLlama, IsSummedUp) {
  const CostModel c = cost(DType::kQ8_0);
  EXPECT_EQ(c.parameters(), 1443072U);
  EXPECT_EQ(c.bytes(), 1441792U / 32 * 34 + 5120);
  EXPECT_EQ(c.main_type(), DType::kQ8_0);
}

TEST_F(TinyLlama, OneToken) {
  const StepCost one = cost(DType::kQ8_0).step(1, 0);
  EXPECT_EQ(one.matmul_flops, 2 * (2 * 589824 + 262144));
  EXPECT_EQ(one.weight_bytes, 1441792 / 32 * 34 + 5120);
  EXPECT_EQ(one.attention_flops, 2 * 4 * 64 * 4);  // layers, 4, head size, heads; one key
  EXPECT_EQ(one.kv_bytes, 2 * 2 * (2 * 64 * 2));   // layers, KV heads; K and V of 64 in two bytes each
  EXPECT_EQ(one.flops(), one.matmul_flops + one.attention_flops);
  EXPECT_EQ(one.bytes(), one.weight_bytes + one.kv_bytes);
}

TEST_F(TinyLlama, RowsAfterADepth) {
  const StepCost three = cost(DType::kQ4_0, DType::kF32).step(3, 10);
  EXPECT_EQ(three.matmul_flops, 2 * (3 * 2 * 589824 + 262144));  // logits of the last row only
  EXPECT_EQ(three.weight_bytes, 1441792 / 32 * 18 + 5120);       // once for all rows
  EXPECT_EQ(three.attention_flops, 2 * 4 * 64 * 4 * (11 + 12 + 13));
  EXPECT_EQ(three.kv_bytes, 2 * 2 * (2 * 64 * 4) * 13);
}

TEST_F(TinyLlama, PromptsComeInChunksAndAnswersInTokens) {
  const CostModel c = cost(DType::kBF16);
  const StepCost prompt = c.prompt(5, 0, 2);
  EXPECT_EQ(prompt.matmul_flops, 2 * (5 * 2 * 589824 + 3 * 262144));
  EXPECT_EQ(prompt.weight_bytes, 3 * (1441792 * 2 + 5120));
  EXPECT_EQ(prompt.attention_flops, 2 * 4 * 64 * 4 * (1 + 2 + 3 + 4 + 5));
  EXPECT_EQ(prompt.kv_bytes, 2 * 2 * 256 * (2 + 4 + 5));
  const StepCost answer = c.generation(2, 7);
  EXPECT_EQ(answer.weight_bytes, 2 * (1441792 * 2 + 5120));
  EXPECT_EQ(answer.kv_bytes, 2 * 2 * 256 * (8 + 9));
}

// 4 layers, the first and the third with a window of 21; 2 heads of 32 on 1 KV head.
TEST(Cost, WindowsBoundWhatIsSeen) {
  for (const char* name : {"gemma2", "gemma2.gguf"}) {
    const CostModel c = cost_of(model_path(name));
    EXPECT_EQ(c.step(1, 30).attention_flops, 4 * 32 * 2 * (2 * 31 + 2 * 21)) << name;
    EXPECT_EQ(c.step(1, 30).kv_bytes, 128 * (2 * 31 + 2 * 21)) << name;
    EXPECT_EQ(c.step(3, 19).attention_flops, 4 * 32 * 2 * (2 * (20 + 21 + 22) + 2 * (20 + 21 + 21))) << name;
    EXPECT_EQ(c.step(3, 30).kv_bytes, 128 * (2 * 33 + 2 * 23)) << name;
  }
}

TEST(Cost, LayersMayStoreKAndVDifferently) {
  const ModelSource source = value_of(ModelSource::open(model_path("gemma2")));
  std::vector<KvFormat> layers(4, {.dtype = DType::kF16, .head_dim = 32});
  layers[3].dtype = DType::kF32;
  const CostModel c = value_of(CostModel::make(source, layers));
  EXPECT_EQ(c.step(1, 30).kv_bytes, 128 * (2 * 21 + 31) + 256 * 31);
}

// 2 layers of attention 4096 + 1024 + 1024 + 4096 and a router of 256; 4 experts of 3 * 2048, 2 per token; output 22528
// and as large an embedding beside it; five norms of 64. All bf16.
TEST(Cost, ExpertsCountByUse) {
  const CostModel c = cost_of(model_path("mixtral"));
  const double dense = 2 * 10496, experts = 2 * 4 * 6144, output = 22528;
  EXPECT_EQ(c.parameters(), 115520U);
  EXPECT_EQ(c.step(1, 0).matmul_flops, 2 * (dense + experts / 2 + output));
  EXPECT_EQ(c.step(1, 0).weight_bytes, 2 * (dense + experts / 2 + output) + 2 * 320);
  EXPECT_EQ(c.step(5, 0).matmul_flops, 2 * (5 * (dense + experts / 2) + output));
  EXPECT_EQ(c.step(5, 0).weight_bytes, 2 * (dense + experts + output) + 2 * 320);
}

}  // namespace
}  // namespace godwit
