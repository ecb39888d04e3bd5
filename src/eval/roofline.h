// A measured speed as shares of what the machine can do at most.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/limits.h"
#include "eval/cost.h"
#include "eval/speed.h"

namespace godwit {

// One operation of a test. Rates are its counted work (see cost.h) over the time it took; "whole" is all counted work
// over all time; "the rest" is the time that is in neither kind of operation.
struct RooflineRow {
  std::string operation;
  double time_share = 0;  // of the test's time
  double flops_per_second = 0, bytes_per_second = 0;
  double fma_share = 0, read_share = 0;  // of the machine's limits
};

// REQUIRES: the engine was opened with EngineOptions::profile. `chunk` is its prefill_chunk.
std::vector<RooflineRow> roofline(const SpeedTest& test, const SpeedResult& result, const CostModel& model, int chunk,
                                  const MachineLimits& limits);

}  // namespace godwit
