#include "plan/model.h"

#include <gtest/gtest.h>

#include "engine/builtin_model.h"
#include "eval/cost.h"
#include "kv/codec.h"

namespace godwit::plan {
namespace {

Device plain_device() {
  Device device;
  device.matmul_flops = device.attention_flops = 1;
  device.weight_bytes_per_s = device.kv_bytes_per_s = device.elementwise_bytes_per_s = 1;
  return device;
}

struct Sums {
  double matmul_flops = 0, weight_bytes = 0, attention_flops = 0, kv_bytes = 0;
};

Sums sums_of(const PlanModel& model, const KvFormat& kv, double rows, double depth) {
  Sums sums;
  const double slot = static_cast<double>(kv.page_bytes()) / kv.page_tokens;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerOps ops(model, i, 1, slot, plain_device());
    for (const auto& list : {ops.before_attention(rows), ops.after_attention(rows)})
      for (const OpCost& op : list)
        if (op.kind == OpKind::kMatmul) sums.matmul_flops += op.flops, sums.weight_bytes += op.bytes;
    const OpCost attention = ops.attention(rows * depth + rows * (rows + 1) / 2, depth + rows);
    sums.attention_flops += attention.flops, sums.kv_bytes += attention.bytes;
  }
  const OpCost logits = logits_op(model, 1, 1);
  sums.matmul_flops += logits.flops, sums.weight_bytes += logits.bytes;
  return sums;
}

// What `bench --roofline` counts for a whole step is what the planner's operators sum to.
TEST(PlanModel, OperatorsSumToTheCostOfAStep) {
  const ModelSource source = *open_builtin_model();
  const PlanModel model = *plan_model(source);
  const KvFormat kv = *make_kv_format("q8", source.config().head_dim);
  const CostModel cost = *CostModel::make(source, kv);
  EXPECT_EQ(model.parameters, static_cast<double>(cost.parameters()));
  EXPECT_EQ(model.weight_bytes, static_cast<double>(cost.bytes()));
  for (const auto& [rows, depth] : {std::pair(512, 1024), std::pair(1, 4096)}) {
    const StepCost step = cost.step(rows, depth);
    const Sums sums = sums_of(model, kv, rows, depth);
    EXPECT_NEAR(sums.matmul_flops / step.matmul_flops, 1, 1e-9);
    EXPECT_NEAR(sums.attention_flops / step.attention_flops, 1, 1e-9);
    EXPECT_NEAR(sums.kv_bytes / step.kv_bytes, 1, 1e-9);
    EXPECT_NEAR(sums.weight_bytes / step.weight_bytes, 1, 0.005);  // the step counts norms among the weights
  }
}

TEST(PlanModel, OfAShapeHasItsParametersAndBits) {
  const ModelShape shape = *find_shape("llama-3.1-8b");
  const PlanModel model = plan_model(shape, 16, 8);
  EXPECT_EQ(model.parameters, static_cast<double>(shape_parameters(shape)));
  const double ffn = 32.0 * 3 * 4096 * 14336;
  EXPECT_EQ(model.weight_bytes, 2 * (model.parameters - ffn) + ffn);
  EXPECT_FALSE(model.tied);
  EXPECT_TRUE(plan_model(*find_shape("llama-3.2-1b"), 16, 16).tied);
}

TEST(PlanModel, ExpertsAreReadAsFarAsRowsCanChooseThem) {
  const PlanModel model = plan_model(*find_shape("mixtral-8x7b"), 16, 16);
  const LayerOps ops(model, 0, 1, 512, plain_device());
  auto experts = [&](double rows) {
    for (const OpCost& op : ops.after_attention(rows))
      if (op.name == "experts") return op;
    return OpCost{};
  };
  const double all = model.layers[0].experts.bytes;
  EXPECT_EQ(experts(1).bytes, all / 4);  // 2 of 8
  EXPECT_EQ(experts(3).bytes, all * 3 / 4);
  EXPECT_EQ(experts(100).bytes, all);
  EXPECT_EQ(experts(100).flops, 2 * 100 * model.layers[0].experts.elements / 4);
}

TEST(PlanModel, TensorParallelismDividesAndRepeats) {
  const PlanModel model = plan_model(*find_shape("llama-3.1-405b"), 16, 8);
  const Device device = plain_device();
  const LayerOps one(model, 0, 1, 512, device), eight(model, 0, 8, 512, device), many(model, 0, 32, 512, device);
  EXPECT_EQ(eight.kv_message_bytes(10) * 8, one.kv_message_bytes(10));
  EXPECT_EQ(many.kv_message_bytes(10), eight.kv_message_bytes(10));  // 8 KV heads: repeated from there on
  EXPECT_EQ(many.q_message_bytes(10) * 4, eight.q_message_bytes(10));
  EXPECT_EQ(eight.attention(100, 10).flops * 8, one.attention(100, 10).flops);
  EXPECT_TRUE(check_tensor_degree(model, 32));
  for (int bad : {0, -1, 3, 129, 1000}) EXPECT_FALSE(check_tensor_degree(model, bad)) << bad;
  EXPECT_NE(check_tensor_degree(model, 3).error().message.find("1, 2, 4, 8, 16, 32, 64, 128"), std::string::npos);
}

TEST(PlanModel, NoRowsAreNoWork) {
  const PlanModel model = plan_model(*find_shape("llama-tiny"), 16, 16);
  const LayerOps ops(model, 0, 1, 512, plain_device());
  EXPECT_TRUE(ops.before_attention(0).empty());
  EXPECT_TRUE(ops.after_attention(0).empty());
  EXPECT_EQ(op_seconds(ops.attention(0, 1000), plain_device()), 0);
  EXPECT_EQ(op_seconds(logits_op(model, 1, 0), plain_device()), 0);
}

}  // namespace
}  // namespace godwit::plan
