// Weights that were laid out anew at load, and weights as the file has them: the same answers, to the bit.
#include <gtest/gtest.h>

#include "engine/probe.h"
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

// That strips are what an engine multiplies, wherever the back-end has them, and that a tied embedding is in memory
// once.
TEST(WeightForms, AreWhatWasAskedFor) {
  for (bool map_weights : {false, true}) {
    const Engine engine = builtin(map_weights);
    const Session session = engine.start();
    const ModelWeights& weights = SessionProbe::model(session).weights();
    Tensor rows = weights.layers[0].down.weight;
    rows.packed = false;
    const bool can = SessionProbe::cache(session).pool().backend().can_pack(rows);
    for (const LayerWeights& layer : weights.layers)
      for (const Linear& each : {layer.q, layer.o, layer.up, layer.down})
        EXPECT_EQ(each.weight.packed, can && !map_weights);
    EXPECT_EQ(weights.output.packed, can && !map_weights);
    EXPECT_EQ(weights.embedding.data, weights.output.data);
    EXPECT_EQ(weights.embedding.packed, weights.output.packed);
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
