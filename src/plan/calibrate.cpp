#include "plan/calibrate.h"

#include <algorithm>

#include "backend/attention.h"
#include "base/check.h"

namespace godwit::plan {
namespace {

constexpr int kGenerated = 32;

// One test's times, of its quickest repetition: other programs only ever add to them.
struct Times {
  double matmul = 0, attention = 0, rest = 0;
  StepCost cost;
  double tokens = 0;
};

Times times_of(const Profile& profile, const CostModel& cost, int chunk) {
  const SpeedTest& test = profile.test;
  const SpeedResult::Run& run = profile.result.quickest;
  Times times;
  times.matmul = run.matmul_seconds;
  times.attention = run.attention_seconds;
  times.rest = std::max(0.0, run.seconds - run.matmul_seconds - run.attention_seconds);
  times.cost = test.prompt > 0 ? cost.prompt(test.prompt, test.depth, chunk)
                               : cost.generation(test.generated, std::max(test.depth, 1));
  times.tokens = test.tokens();
  return times;
}

// seconds = work / rate + fixed, through two measurements. Where noise makes the line fall or start below zero, it goes
// through the origin and the larger one.
struct Line {
  double rate = 0, fixed_s = 0;
};
Line line_through(double small_work, double small_s, double large_work, double large_s) {
  const double slope = (large_s - small_s) / (large_work - small_work);
  const double fixed = large_s - slope * large_work;
  if (!(slope > 0) || !(fixed >= 0)) return {large_work / std::max(large_s, 1e-9), 0};
  return {1 / slope, fixed};
}

// Bytes of elementwise operators for so many rows, in all layers.
double elementwise_bytes(const PlanModel& model, const Device& device, double kv_slot_bytes, double rows) {
  double bytes = 0;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const LayerOps ops(model, layer, 1, kv_slot_bytes, device);
    for (const auto& list : {ops.before_attention(rows), ops.after_attention(rows)})
      for (const OpCost& op : list)
        if (op.kind == OpKind::kElementwise) bytes += op.bytes;
  }
  return bytes;
}

}  // namespace

Result<std::vector<Profile>> profile_machine(EngineOptions options, const ModelSource& source,
                                             const std::function<void(double)>& on_progress, std::stop_token stop) {
  const int64_t context = source.config().context_length;
  const int chunk = static_cast<int>(std::min<int64_t>(options.prefill_chunk, context / 4));
  if (chunk < 16)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: a context of {} tokens and chunks of {} are too short to measure this machine with",
                  source.label(), context, options.prefill_chunk);
  // A small model is read quickly: farther, so that attention is seen, and more often.
  const bool small = source.weight_bytes() < (size_t{100} << 20);
  const int deep = static_cast<int>(std::min<int64_t>((small ? 8 : 2) * int64_t{chunk}, context - 2 * chunk));
  const int repetitions = small ? 4 : 2;
  const SpeedTest tests[] = {{.prompt = chunk},
                             {.generated = kGenerated},
                             {.prompt = chunk, .depth = deep},
                             {.generated = kGenerated, .depth = deep}};
  options.prefill_chunk = chunk;
  options.context_tokens = deep + chunk + kGenerated + 2;
  options.profile = true;
  GODWIT_ASSIGN(Engine engine, Engine::open(options));
  SpeedMeter meter(engine);
  std::vector<Profile> profiles;
  for (const SpeedTest& test : tests) {
    auto progress = [&](double share) {
      if (on_progress) on_progress((static_cast<double>(profiles.size()) + share) / std::size(tests));
    };
    GODWIT_ASSIGN(SpeedResult result, meter.measure(test, repetitions, progress, stop));
    profiles.push_back({test, std::move(result)});
  }
  return profiles;
}

Device device_from_profiles(const std::vector<Profile>& profiles, const CostModel& cost, const PlanModel& model,
                            int chunk, double kv_slot_bytes, double memory_bytes) {
  GODWIT_CHECK(profiles.size() == 4);
  const Times prompt = times_of(profiles[0], cost, chunk), token = times_of(profiles[1], cost, chunk);
  const Times deep_prompt = times_of(profiles[2], cost, chunk), deep_token = times_of(profiles[3], cost, chunk);
  const auto layers = static_cast<double>(model.layers.size());

  Device device;
  device.name = "this";
  device.description = fmt::format("this machine with {}", model.name);
  auto set = [&](const char* key, double value, const char* source, const char* note) {
    set_constant(device, {key, value, source, note});
  };
  set("memory_gb", memory_bytes / 1e9, "measured", "of the machine");
  set("activation_bytes", 4, "published", "fp32");
  set("partial_bytes", 4, "published", "fp32");
  set("chunk_tokens", profiles[0].test.prompt, "published", "the engine's");
  set("ring_step_us", 20, "assumed", "");
  set("segment_tokens", kSegmentPages * static_cast<double>(KvFormat().page_tokens), "published", "the engine's");

  set("matmul_tflops",
      (prompt.cost.matmul_flops + deep_prompt.cost.matmul_flops) / (prompt.matmul + deep_prompt.matmul) / 1e12,
      "measured", "matrix products of a chunk");
  const Line attention = line_through(prompt.cost.attention_flops, prompt.attention, deep_prompt.cost.attention_flops,
                                      deep_prompt.attention);
  set("attention_tflops", attention.rate / 1e12, "measured", "attention of a chunk, shallow and deep");
  // What attention takes however short the context is comes with the rows, as the rest does.
  const double rest_s = (prompt.rest + deep_prompt.rest) / 2 + attention.fixed_s;
  set("elementwise_gb_per_s",
      elementwise_bytes(model, device, kv_slot_bytes, prompt.tokens) / std::max(rest_s, 1e-9) / 1e9, "measured",
      "all else about a chunk");

  set("weight_gb_per_s",
      (token.cost.weight_bytes + deep_token.cost.weight_bytes) / (token.matmul + deep_token.matmul) / 1e9, "measured",
      "matrix products of single tokens");
  const Line kv = line_through(token.cost.kv_bytes, token.attention, deep_token.cost.kv_bytes, deep_token.attention);
  set("kv_gb_per_s", kv.rate / 1e9, "measured", "attention of single tokens, shallow and deep");
  const double token_rest_s = (kv.fixed_s + (token.rest + deep_token.rest) / 2) / token.tokens -
                              elementwise_bytes(model, device, kv_slot_bytes, 1) / device.elementwise_bytes_per_s;
  set("decode_layer_us", std::max(0.0, token_rest_s) / layers * 1e6, "measured", "all else about a token");
  return device;
}

}  // namespace godwit::plan
