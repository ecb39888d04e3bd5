#include "plan/calibrate.h"

#include <gtest/gtest.h>

#include "engine/builtin_model.h"
#include "kv/codec.h"
#include "plan/plan.h"

namespace godwit::plan {
namespace {

constexpr int kChunk = 512, kDeep = 4096, kGenerated = 32;

class Calibrate : public testing::Test {
 protected:
  // A machine of known speed.
  Profile profile(SpeedTest test) const {
    const StepCost c = test.prompt > 0 ? cost_.prompt(test.prompt, test.depth, kChunk)
                                       : cost_.generation(test.generated, std::max(test.depth, 1));
    const double tokens = test.tokens();
    SpeedResult::Run run;
    run.matmul_seconds = test.prompt > 0 ? c.matmul_flops / 50e9 : c.weight_bytes / 10e9;
    run.attention_seconds =
        test.prompt > 0 ? c.attention_flops / 40e9 + tokens * 10e-6 : c.kv_bytes / 8e9 + tokens * 100e-6;
    run.seconds = run.matmul_seconds + run.attention_seconds + tokens * (test.prompt > 0 ? 20e-6 : 300e-6);
    SpeedResult result;
    result.quickest = run;
    return {test, result};
  }

  Device device(const std::vector<Profile>& profiles) const {
    return device_from_profiles(profiles, cost_, model_, kChunk, slot_bytes_, 16e9);
  }

  double predicted(const Device& device, const SpeedTest& test) const {
    PlanRequest request;
    request.model = model_;
    request.device = device;
    request.kv = kv_;
    request.new_tokens = test.prompt > 0 ? test.prompt : kGenerated / 2;
    request.cached_tokens = test.depth;
    const PlanResult result = *make_plan(request);
    return test.prompt > 0 ? result.prefill.seconds : result.decode.seconds * test.generated;
  }

  const ModelSource source_ = *open_builtin_model();
  const PlanModel model_ = *plan_model(source_);
  const KvFormat kv_ = *make_kv_format("f16", source_.config().head_dim);
  const double slot_bytes_ = static_cast<double>(kv_.page_bytes()) / kv_.page_tokens;
  const CostModel cost_ = *CostModel::make(source_, kv_);
  const std::vector<SpeedTest> tests_ = {{.prompt = kChunk},
                                         {.generated = kGenerated},
                                         {.prompt = kChunk, .depth = kDeep},
                                         {.generated = kGenerated, .depth = kDeep}};
};

TEST_F(Calibrate, FindsTheRatesBehindTheTimes) {
  std::vector<Profile> profiles;
  for (const SpeedTest& test : tests_) profiles.push_back(profile(test));
  const Device found = device(profiles);
  EXPECT_NEAR(found.matmul_flops / 50e9, 1, 1e-6);
  EXPECT_NEAR(found.attention_flops / 40e9, 1, 1e-6);
  EXPECT_NEAR(found.weight_bytes_per_s / 10e9, 1, 1e-6);
  EXPECT_NEAR(found.kv_bytes_per_s / 8e9, 1, 1e-6);
  EXPECT_EQ(found.chunk_tokens, kChunk);
  EXPECT_TRUE(parse_device(device_text(found), "saved")) << "it can be saved and read";
}

TEST_F(Calibrate, PredictsWhatItWasNotShown) {
  std::vector<Profile> profiles;
  for (const SpeedTest& test : tests_) profiles.push_back(profile(test));
  const Device found = device(profiles);
  for (const SpeedTest& test : {SpeedTest{.prompt = kChunk}, SpeedTest{.prompt = 4 * kChunk, .depth = 1000},
                                SpeedTest{.prompt = 16384}, SpeedTest{.generated = kGenerated, .depth = 20000}}) {
    const double real = profile(test).result.quickest.seconds;
    EXPECT_NEAR(predicted(found, test) / real, 1, 0.01) << test.name();
  }
}

// Noise may make the deep test look quicker than the shallow one: rates stay positive.
TEST_F(Calibrate, NoiseMakesNoNonsense) {
  std::vector<Profile> profiles;
  for (const SpeedTest& test : tests_) profiles.push_back(profile(test));
  profiles[0].result.quickest.attention_seconds = 1;
  profiles[0].result.quickest.seconds = 0.5;  // less than its parts
  profiles[1].result.quickest.attention_seconds = 1;
  const Device found = device(profiles);
  for (double rate : {found.matmul_flops, found.attention_flops, found.weight_bytes_per_s, found.kv_bytes_per_s,
                      found.elementwise_bytes_per_s})
    EXPECT_GT(rate, 0);
  EXPECT_GE(found.decode_layer_s, 0);
  EXPECT_TRUE(parse_device(device_text(found), "saved"));
}

}  // namespace
}  // namespace godwit::plan
