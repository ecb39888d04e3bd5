// Mixture of experts: routing, the grouped matmul, and the weighted sum.
#include <cmath>

#include "device.h"

namespace godwit::test {
namespace {

class ExpertsTest : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, ExpertsTest, testing::ValuesIn(tested_targets()));
class ExpertMatmulTest : public InEveryWay {};
INSTANTIATE_TEST_SUITE_P(Ways, ExpertMatmulTest, every_way(), way_name);

constexpr int64_t kExperts = 5, kOut = 37, kIn = 64, kPerToken = 2;

std::vector<int32_t> expert_ids(int64_t tokens) {  // two different experts per token; expert 3 is never chosen
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t first = t % 3 == 0 ? 4 : static_cast<int32_t>(t % 2);
    ids.insert(ids.end(), {first, 2});
  }
  return ids;
}

Floats run(Device& device, DType dtype, const std::vector<int32_t>& ids, int64_t x_rows, const Floats& x,
           const Floats& w) {
  const auto tokens = static_cast<int64_t>(ids.size()) / kPerToken;
  ExpertMatmulArgs args;
  args.x = device.make({x_rows, kIn}, x);
  args.w = device.make({kExperts, kOut, kIn}, w, dtype);
  args.ids = device.make_ints({tokens, kPerToken}, ids);
  args.y = device.make({tokens * kPerToken, kOut}, Floats(ids.size() * kOut, 77), DType::kF32, 3);
  args.phase = device.phase();
  device->expert_matmul(args);
  EXPECT_TRUE(device.gaps_intact(args.y, 3));
  return device.read(args.y);
}

TEST_P(ExpertMatmulTest, AgreesWithReference) {
  Device tested(GetParam()), reference("reference");
  const Floats w = random_floats(kExperts * kOut * kIn, 2, 0.1f);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ5_1})
    for (int64_t tokens : {1, 3, 50})
      for (int64_t x_rows : {tokens, tokens * kPerToken}) {
        const std::vector<int32_t> ids = expert_ids(tokens);
        const Floats x = random_floats(static_cast<size_t>(x_rows * kIn), 1);
        // Rounding operands to bf16: the standard deviation is 1e-3, sqrt(in / 3) * 2^-9 * the weights' spread. To 8
        // bits: 4e-3, sqrt(in / 12) * the step (the largest of 32 over 127) * that; both, of 256: 8e-3.
        const Rounding rounding = rounding_of(tested, dtype);
        const float absolute = rounding == Rounding::kNone        ? 2e-5f
                               : rounding == Rounding::kBf16      ? 1e-2f
                               : rounding == Rounding::kEightBits ? 3e-2f
                                                                  : 6e-2f;
        expect_close(run(tested, dtype, ids, x_rows, x, w), run(reference, dtype, ids, x_rows, x, w), 0, absolute);
      }
}

TEST_P(ExpertMatmulTest, EqualsMatmulBitForBit) {
  Device tested(GetParam());
  const int64_t tokens = 50;
  const Floats w = random_floats(kExperts * kOut * kIn, 2, 0.1f), x = random_floats(tokens * kIn, 1);
  const std::vector<int32_t> ids = expert_ids(tokens);
  for (DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ5_1}) {
    const Floats y = run(tested, dtype, ids, tokens, x, w);
    for (int64_t row : {0, 1, 7, 42, 99}) {
      const int64_t expert = ids[static_cast<size_t>(row)];
      MatmulArgs args;
      args.x = tested.make({1, kIn}, pick_rows(x, kIn, {row / kPerToken}));
      args.w = tested.make({kOut, kIn}, pick_rows(w, kOut * kIn, {expert}), dtype);
      args.y = tested.make({1, kOut}, Floats(kOut));
      args.phase = tested.phase();
      tested->matmul(args);
      expect_same(pick_rows(y, kOut, {row}), tested.read(args.y));
    }
  }
}

TEST_P(ExpertsTest, CombineAgreesWithReference) {
  Device tested(GetParam()), reference("reference");
  for (int64_t per_token : {1, 2, 8})
    for (int64_t dim : {1, 31, 200}) {
      const int64_t tokens = 9;
      auto run_on = [&](Device& device) {
        const Tensor x =
            device.make({tokens * per_token, dim}, random_floats(static_cast<size_t>(tokens * per_token * dim), 1));
        const Tensor weights =
            device.make({tokens, per_token}, random_floats(static_cast<size_t>(tokens * per_token), 2));
        const Tensor out = device.make({tokens, dim}, Floats(static_cast<size_t>(tokens * dim), 5), DType::kF32, 2);
        device->combine_experts(x, weights, out);
        EXPECT_TRUE(device.gaps_intact(out, 2));
        return device.read(out);
      };
      expect_close(run_on(tested), run_on(reference), 1e-6f, 2e-6f);
    }
}

struct Routed {
  std::vector<int32_t> ids;
  Floats weights;
};

Routed route(Device& device, int64_t experts, int64_t count, const Floats& logits, bool normalize) {
  const auto tokens = static_cast<int64_t>(logits.size()) / experts;
  RouteArgs args;
  args.logits = device.make({tokens, experts}, logits);
  args.ids = device.make_ints({tokens, count}, std::vector<int32_t>(static_cast<size_t>(tokens * count), -1));
  args.weights = device.make({tokens, count}, Floats(static_cast<size_t>(tokens * count)));
  args.normalize = normalize;
  device->route(args);
  return {device.read_ints(args.ids), device.read(args.weights)};
}

TEST_P(ExpertsTest, RouteTakesTheBestFirstAndTheLowerIndexOnTies) {
  Device tested(GetParam());
  const Routed routed = route(tested, 5, 3, {1, 3, 3, 2, 3, /**/ 0, 0, 0, 0, 0, /**/ -5, -4, -3, -2, -1}, false);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 2, 4, 0, 1, 2, 4, 3, 2}));
  const float all = std::exp(1.0f) + 3 * std::exp(3.0f) + std::exp(2.0f);
  EXPECT_NEAR(routed.weights[0], std::exp(3.0f) / all, 1e-6f);
  EXPECT_NEAR(routed.weights[3], 0.2f, 1e-7f);
}

TEST_P(ExpertsTest, RouteNormalizesTheChosen) {
  Device tested(GetParam());
  const int64_t experts = 128, count = 8;
  const Floats logits = random_floats(40 * experts, 3, 4);
  const Routed plain = route(tested, experts, count, logits, false),
               scaled = route(tested, experts, count, logits, true);
  EXPECT_EQ(plain.ids, scaled.ids);
  for (size_t token = 0; token < 40; ++token) {
    float sum = 0, plain_sum = 0;
    for (size_t j = 0; j < count; ++j) {
      sum += scaled.weights[token * count + j];
      plain_sum += plain.weights[token * count + j];
      EXPECT_LE(plain.weights[token * count + j], plain.weights[token * count + (j > 0 ? j - 1 : 0)]);
    }
    EXPECT_NEAR(sum, 1, 1e-6f);
    EXPECT_LT(plain_sum, 1);
    for (size_t j = 0; j < count; ++j)
      EXPECT_NEAR(scaled.weights[token * count + j], plain.weights[token * count + j] / plain_sum, 1e-6f);
  }
}

TEST_P(ExpertsTest, RouteSurvivesLogitsThatAreNotNumbers) {
  Device tested(GetParam());
  const Routed routed = route(tested, 4, 2, {NAN, NAN, NAN, NAN, /**/ NAN, 1, NAN, 2}, true);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 3, 1}));
}

}  // namespace
}  // namespace godwit::test
