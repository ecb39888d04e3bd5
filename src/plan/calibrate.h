// This machine as a device: effective rates from a short profile of a model, by the code behind `godwit bench
// --roofline`.
#pragma once

#include <functional>
#include <stop_token>

#include "eval/cost.h"
#include "eval/speed.h"
#include "plan/hardware.h"
#include "plan/model.h"
#include <godwit/engine.h>

namespace godwit::plan {

struct Profile {
  SpeedTest test;
  SpeedResult result;
};

// Two prompts of one chunk and two generations, each at a small and at a large depth. Takes about as long as reading
// ten chunks. `options` name the model, of which `source` is the file, its threads and its codec.
Result<std::vector<Profile>> profile_machine(EngineOptions options, const ModelSource& source,
                                             const std::function<void(double)>& on_progress, std::stop_token stop);

// Rates from profiles: of matrix products and attention at prefill, of weights and KV at decode, and what is left per
// number moved and per layer. REQUIRES: what profile_machine returns. `chunk` is the engine's prefill_chunk.
Device device_from_profiles(const std::vector<Profile>& profiles, const CostModel& cost, const PlanModel& model,
                            int chunk, double kv_slot_bytes, double memory_bytes);

}  // namespace godwit::plan
