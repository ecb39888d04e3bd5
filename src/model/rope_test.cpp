// Rotary frequencies and magnitudes of every scaling, against transformers 5.22's ROPE_INIT_FUNCTIONS for heads of 16.
#include <cmath>

#include <gtest/gtest.h>

#include "model/config.h"

namespace godwit {
namespace {

using Scaling = RopeConfig::Scaling;

struct Golden {
  const char* name;
  RopeConfig rope;
  int64_t model_context, context;
  double magnitude;
  std::vector<float> inv_freq;
};

RopeConfig scaled(Scaling scaling, double factor, int64_t original) {
  RopeConfig rope;
  rope.scaling = scaling;
  rope.factor = factor;
  rope.original_context = original;
  return rope;
}

std::vector<Golden> goldens() {
  const std::vector<float> plain = {1.0F,           0.316227764F,   0.100000001F,   0.0316227786F,
                                    0.00999999978F, 0.00316227786F, 0.00100000005F, 0.000316227786F};
  const std::vector<float> yarn = {1.0F,           0.25693506F,     0.0625F,         0.0138349654F,
                                   0.00249999994F, 0.000790569466F, 0.000250000012F, 7.90569466e-05F};
  RopeConfig uncut = scaled(Scaling::kYarn, 4, 256);
  uncut.beta_fast = 16;
  uncut.beta_slow = 2;
  uncut.mscale = 0.707;
  uncut.mscale_all_dim = 0.5;
  uncut.truncate = false;
  RopeConfig given = scaled(Scaling::kYarn, 4, 256);
  given.attention_factor = 1.25;
  RopeConfig llama3 = scaled(Scaling::kLlama3, 8, 512);
  llama3.theta = 500000;
  RopeConfig longrope = scaled(Scaling::kLongRope, 8, 128);
  longrope.short_factors = {1.0F, 1.05F, 1.1F, 1.2F, 1.3F, 1.4F, 1.5F, 1.6F};
  longrope.long_factors = {1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, 8.0F, 12.0F};
  RopeConfig unstated = longrope;  // as Phi 3 has it: the ratio of the lengths is the factor
  unstated.factor = 1;
  const std::vector<float> long_freq = {1.0F,           0.210818499F,   0.0500000007F,   0.010540925F,
                                        0.00249999994F, 0.00052704633F, 0.000125000006F, 2.63523143e-05F};
  return {
      {"none", RopeConfig(), 2048, 2048, 1, plain},
      {"linear",
       scaled(Scaling::kLinear, 4, 0),
       2048,
       2048,
       1,
       {0.25F, 0.079056941F, 0.0250000004F, 0.00790569466F, 0.00249999994F, 0.000790569466F, 0.000250000012F,
        7.90569466e-05F}},
      {"dynamic within", scaled(Scaling::kDynamic, 2, 64), 128, 64, 1, plain},
      {"dynamic below", scaled(Scaling::kDynamic, 2, 64), 128, 10, 1, plain},
      {"dynamic beyond",
       scaled(Scaling::kDynamic, 2, 64),
       256,
       200,
       1,
       {1.0F, 0.249528468F, 0.0622644536F, 0.0155367535F, 0.00387686281F, 0.000967387517F, 0.000241390735F,
        6.02338623e-05F}},
      {"yarn", scaled(Scaling::kYarn, 4, 256), 2048, 2048, 1.138629436111989, yarn},
      {"yarn, ramp not truncated",
       uncut,
       2048,
       2048,
       1.0268361529030026,
       {1.0F, 0.291525632F, 0.0506643951F, 0.00790569466F, 0.00249999994F, 0.000790569466F, 0.000250000012F,
        7.90569466e-05F}},
      {"yarn, factor given", given, 2048, 2048, 1.25, yarn},
      {"llama3",
       llama3,
       2048,
       2048,
       1,
       {1.0F, 0.193922758F, 0.0273441337F, 0.000911583134F, 0.000176776681F, 3.42810235e-05F, 6.64786967e-06F,
        1.28917316e-06F}},
      {"longrope, short",
       longrope,
       1024,
       128,
       1.1952286093343936,
       {1.0F, 0.301169306F, 0.0909090936F, 0.0263523124F, 0.0076923077F, 0.00225876993F, 0.00066666666F,
        0.000197642366F}},
      {"longrope, long", longrope, 1024, 129, 1.1952286093343936, long_freq},
      {"longrope, factor from the lengths", unstated, 1024, 1024, 1.1952286093343936, long_freq},
  };
}

TEST(Rope, TablesEqualTransformers) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.name);
    ModelConfig config;
    config.rotary_dim = 16;
    config.context_length = golden.model_context;
    const RopeTable table = make_rope_table(golden.rope, config, golden.context);
    EXPECT_NEAR(table.magnitude, golden.magnitude, 1e-6);
    ASSERT_EQ(table.inv_freq.size(), golden.inv_freq.size());
    for (size_t i = 0; i < table.inv_freq.size(); ++i)
      EXPECT_NEAR(table.inv_freq[i] / golden.inv_freq[i], 1.0, 3e-7) << "frequency " << i;
  }
}

TEST(Rope, DivisorsDivideTheFrequencies) {
  ModelConfig config;
  config.rotary_dim = 4;
  RopeConfig rope;
  rope.divisors = {2, 8};
  const RopeTable table = make_rope_table(rope, config, 100);
  EXPECT_FLOAT_EQ(table.inv_freq[0], 0.5F);
  EXPECT_FLOAT_EQ(table.inv_freq[1], 0.01F / 8);
}

TEST(Rope, OnlyTheRotaryPartHasFrequencies) {
  ModelConfig config;
  config.head_dim = 32;
  config.rotary_dim = 24;
  const RopeTable table = make_rope_table({}, config, 100);
  ASSERT_EQ(table.inv_freq.size(), 12U);
  EXPECT_FLOAT_EQ(table.inv_freq[6], 0.01F);  // theta^(-12/24), not by the head's size
}

}  // namespace
}  // namespace godwit
