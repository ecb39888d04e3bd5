// validate(): every field that a file can get wrong is refused by name.
#include "model/config.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace godwit {
namespace {

using Scaling = RopeConfig::Scaling;

ModelConfig good() {
  ModelConfig c;
  c.vocab_size = 100;
  c.dim = 64;
  c.ffn_dim = 128;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = c.rotary_dim = 16;
  c.context_length = 512;
  c.ropes = {RopeConfig()};
  c.ropes[0].original_context = 512;
  c.layers.resize(2);
  return c;
}

struct Absurd {
  const char* mention;
  std::function<void(ModelConfig&)> change;
};

void expect_refused(const Absurd& absurd) {
  ModelConfig config = good();
  absurd.change(config);
  Status status = validate(config, "model.gguf");
  ASSERT_FALSE(status.has_value()) << absurd.mention;
  EXPECT_EQ(status.error().message.rfind("model.gguf: ", 0), 0U) << status.error().message;
  EXPECT_NE(status.error().message.find(absurd.mention), std::string::npos) << status.error().message;
}

TEST(Validate, TakesWhatIsSound) {
  EXPECT_TRUE(validate(good(), "m").has_value());
  ModelConfig moe = good();
  moe.ffn_dim = 0;
  moe.experts = 4;
  moe.experts_per_token = 2;
  moe.expert_ffn_dim = 32;
  moe.layers[0].experts = moe.layers[1].experts = true;
  EXPECT_TRUE(validate(moe, "m").has_value());
}

TEST(Validate, RefusesAbsurdSizes) {
  const Absurd cases[] = {
      {"number of layers", [](ModelConfig& c) { c.layers.clear(); }},
      {"number of layers", [](ModelConfig& c) { c.layers.resize(5000); }},
      {"vocabulary size", [](ModelConfig& c) { c.vocab_size = 0; }},
      {"vocabulary size", [](ModelConfig& c) { c.vocab_size = int64_t{1} << 40; }},
      {"embedding size", [](ModelConfig& c) { c.dim = -64; }},
      {"embedding size", [](ModelConfig& c) { c.dim = 1 << 21; }},
      {"feed-forward size", [](ModelConfig& c) { c.ffn_dim = 0; }},
      {"number of heads", [](ModelConfig& c) { c.heads = 0; }},
      {"number of KV heads", [](ModelConfig& c) { c.kv_heads = 0; }},
      {"number of KV heads", [](ModelConfig& c) { c.kv_heads = -2; }},
      {"cannot share", [](ModelConfig& c) { c.kv_heads = 3; }},
      {"head size", [](ModelConfig& c) { c.head_dim = 4; }},
      {"head size", [](ModelConfig& c) { c.head_dim = 2048; }},
      {"not a multiple of 8", [](ModelConfig& c) { c.head_dim = 20; }},
      {"rotary size", [](ModelConfig& c) { c.rotary_dim = 18; }},
      {"rotary size", [](ModelConfig& c) { c.rotary_dim = 0; }},
      {"is odd", [](ModelConfig& c) { c.rotary_dim = 7; }},
      {"context length", [](ModelConfig& c) { c.context_length = 0; }},
      {"context length", [](ModelConfig& c) { c.context_length = int64_t{1} << 31; }},
      {"number of experts", [](ModelConfig& c) { c.experts = -1; }},
      {"experts per token", [](ModelConfig& c) { c.experts = 4, c.expert_ffn_dim = 8, c.experts_per_token = 5; }},
      {"experts per token", [](ModelConfig& c) { c.experts = 4, c.expert_ffn_dim = 8; }},
      {"expert feed-forward size", [](ModelConfig& c) { c.experts = 4, c.experts_per_token = 2; }},
      {"mixture of experts", [](ModelConfig& c) { c.layers[1].experts = true; }},
      {"norm epsilon", [](ModelConfig& c) { c.norm_eps = NAN; }},
      {"norm epsilon", [](ModelConfig& c) { c.norm_eps = -1; }},
      {"attention scale", [](ModelConfig& c) { c.attention_scale = INFINITY; }},
      {"attention scale", [](ModelConfig& c) { c.attention_scale = NAN; }},
      {"attention soft cap", [](ModelConfig& c) { c.attention_softcap = -1; }},
      {"logit soft cap", [](ModelConfig& c) { c.logit_softcap = NAN; }},
      {"window", [](ModelConfig& c) { c.layers[1].window = -1; }},
      {"rope", [](ModelConfig& c) { c.layers[0].rope = 1; }},
      {"rope", [](ModelConfig& c) { c.layers[0].rope = -1; }},
      {"rope", [](ModelConfig& c) { c.ropes.clear(); }},
  };
  for (const Absurd& absurd : cases) expect_refused(absurd);
}

TEST(Validate, RefusesAbsurdRopes) {
  auto rope = [](Scaling scaling, std::function<void(RopeConfig&)> change) {
    return [=](ModelConfig& c) {
      c.ropes[0].scaling = scaling;
      change(c.ropes[0]);
    };
  };
  auto longrope = [&](std::function<void(RopeConfig&)> change) {
    return rope(Scaling::kLongRope, [=](RopeConfig& r) {
      r.long_factors.assign(8, 2);
      r.short_factors.assign(8, 1);
      change(r);
    });
  };
  const Absurd cases[] = {
      {"RoPE base", rope(Scaling::kNone, [](RopeConfig& r) { r.theta = 0; })},
      {"RoPE base", rope(Scaling::kNone, [](RopeConfig& r) { r.theta = NAN; })},
      {"RoPE base", rope(Scaling::kNone, [](RopeConfig& r) { r.theta = 1e300; })},
      {"factor", rope(Scaling::kLinear, [](RopeConfig& r) { r.factor = 0; })},
      {"factor", rope(Scaling::kLinear, [](RopeConfig& r) { r.factor = INFINITY; })},
      {"attention factor", rope(Scaling::kYarn, [](RopeConfig& r) { r.attention_factor = NAN; })},
      {"original context", rope(Scaling::kYarn, [](RopeConfig& r) { r.original_context = 0; })},
      {"original context", rope(Scaling::kDynamic, [](RopeConfig& r) { r.original_context = -5; })},
      {"YaRN", rope(Scaling::kYarn, [](RopeConfig& r) { r.theta = 1; })},
      {"beta_slow", rope(Scaling::kYarn, [](RopeConfig& r) { r.beta_slow = 0; })},
      {"beta_fast", rope(Scaling::kYarn, [](RopeConfig& r) { r.beta_fast = 0.5; })},
      {"mscale", rope(Scaling::kYarn, [](RopeConfig& r) { r.mscale = NAN; })},
      {"low_freq_factor", rope(Scaling::kLlama3, [](RopeConfig& r) { r.low_freq_factor = 4; })},
      {"low_freq_factor", rope(Scaling::kLlama3, [](RopeConfig& r) { r.low_freq_factor = 0; })},
      {"longrope needs 8", rope(Scaling::kLongRope, [](RopeConfig&) {})},
      {"longrope needs 8", longrope([](RopeConfig& r) { r.short_factors.pop_back(); })},
      {"longrope factor", longrope([](RopeConfig& r) { r.long_factors[3] = 0; })},
      {"longrope factor", longrope([](RopeConfig& r) { r.short_factors[3] = NAN; })},
      {"longrope from 1", longrope([](RopeConfig& r) { r.original_context = 1; })},
      {"3 RoPE divisors for 8", rope(Scaling::kNone, [](RopeConfig& r) { r.divisors.assign(3, 1); })},
      {"RoPE divisor", rope(Scaling::kNone, [](RopeConfig& r) { r.divisors.assign(8, -1); })},
  };
  for (const Absurd& absurd : cases) expect_refused(absurd);
}

}  // namespace
}  // namespace godwit
