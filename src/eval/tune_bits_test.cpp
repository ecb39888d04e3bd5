#include "eval/tune_bits.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace godwit {
namespace {

TEST(TuneBits, TheCheapestChoicesAreFoundExactly) {
  std::mt19937 random(7);
  const std::vector<double> sizes = {8.5, 6.5, 4.5, 3.5, 2.5};
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<double>> costs(4);
    for (auto& layer : costs)
      for (size_t i = 0; i < sizes.size(); ++i) layer.push_back(static_cast<double>(random() % 1000));
    const double budget = 10 + static_cast<double>(random() % 25);
    double best = 1e9;
    for (size_t all = 0; all < 625; ++all) {
      double size = 0, cost = 0;
      for (size_t layer = 0, rest = all; layer < 4; ++layer, rest /= 5) {
        size += sizes[rest % 5];
        cost += costs[layer][rest % 5];
      }
      if (size <= budget) best = std::min(best, cost);
    }
    const std::vector<size_t> chosen = cheapest_choices(costs, sizes, budget);
    ASSERT_EQ(chosen.size(), 4U);
    double size = 0, cost = 0;
    for (size_t layer = 0; layer < 4; ++layer) size += sizes[chosen[layer]], cost += costs[layer][chosen[layer]];
    EXPECT_LE(size, budget);
    EXPECT_EQ(cost, best);
  }
  EXPECT_TRUE(cheapest_choices({{1, 2}, {1, 2}}, {4, 2}, 3.9).empty());
}

TEST(TuneBits, LayersGetWhatTheyNeedWithinTheBudget) {
  EngineOptions model;  // the built-in one
  model.threads = 2;
  TuneBitsOptions options;
  options.bits = 4, options.length = 320, options.tail = 48;
  double last = 0;
  options.on_progress = [&](double share) {
    EXPECT_GT(share, last);
    last = share;
  };
  const auto tuned = tune_bits(model, "", options);
  ASSERT_TRUE(tuned.has_value()) << tuned.error().message;
  EXPECT_NEAR(last, 1, 1e-9);
  ASSERT_EQ(tuned->best.layers.size(), 10U);
  ASSERT_EQ(tuned->uniform.size(), 5U);
  EXPECT_LE(tuned->best.bits, 4);
  EXPECT_NEAR(tuned->uniform[2].bits, 4.5, 1e-9);
  for (size_t i = 1; i < 5; ++i) EXPECT_LT(tuned->uniform[i].bits, tuned->uniform[i - 1].bits);
  EXPECT_LE(tuned->best.mean_kl, tuned->uniform[3].mean_kl);  // 3.5 bits
  EXPECT_LT(tuned->best.mean_kl, tuned->uniform[4].mean_kl);
  for (const auto& layer : tuned->costs) EXPECT_TRUE(std::is_sorted(layer.begin(), layer.end()));
  options.bits = 2;
  EXPECT_NE(tune_bits(model, "", options).error().message.find("the fewest are 2.5"), std::string::npos);
  options.bits = 4;
  EXPECT_NE(tune_bits(model, "too short", options).error().message.find("less than 1 windows"), std::string::npos);
}

}  // namespace
}  // namespace godwit
