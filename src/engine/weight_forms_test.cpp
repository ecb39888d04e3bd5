// Weights that were laid out anew at load, and weights as the file has them: the same answers, to the bit.
#include <gtest/gtest.h>

#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

Engine builtin(bool map_weights) {
  EngineOptions options;
  options.context_tokens = 1024;
  options.map_weights = map_weights;
  return open(options);
}

TEST(WeightForms, GiveTheSameLogitsAndTokens) {
  const Engine packed = builtin(false), mapped = builtin(true);
  for (size_t count : {1, 5, 40, 300}) {
    const std::vector<TokenId> tokens = prompt(count);
    EXPECT_EQ(logits_of(packed, {}, tokens), logits_of(mapped, {}, tokens)) << count;
    EXPECT_EQ(cold(packed, tokens, 12), cold(mapped, tokens, 12)) << count;
  }
}

TEST(WeightForms, LoadingTellsHowFarItIs) {
  EngineOptions options;
  options.context_tokens = 256;
  std::vector<double> shares;
  options.on_load = [&](double share) { shares.push_back(share); };
  open(options);
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1.0);
}

}  // namespace
}  // namespace godwit
