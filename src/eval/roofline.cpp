#include "eval/roofline.h"

#include <algorithm>
#include <numeric>

namespace godwit {

std::vector<RooflineRow> roofline(const SpeedTest& test, const SpeedResult& result, const CostModel& model, int chunk,
                                  const MachineLimits& limits) {
  const StepCost once = test.prompt > 0 ? model.prompt(test.prompt, test.depth, chunk)
                                        : model.generation(test.generated, std::max(test.depth, 1));
  const auto repetitions = static_cast<double>(result.seconds.size());
  const double all = std::accumulate(result.seconds.begin(), result.seconds.end(), 0.0);
  auto row = [&](std::string operation, double seconds, double flops, double bytes) {
    const double flops_rate = seconds > 0 ? flops * repetitions / seconds : 0;
    const double bytes_rate = seconds > 0 ? bytes * repetitions / seconds : 0;
    return RooflineRow{std::move(operation),
                       seconds / all,
                       flops_rate,
                       bytes_rate,
                       flops_rate / limits.fma_flops_per_second,
                       bytes_rate / limits.read_bytes_per_second};
  };
  return {row("matrix products", result.matmul_seconds, once.matmul_flops, once.weight_bytes),
          row("attention", result.attention_seconds, once.attention_flops, once.kv_bytes),
          row("the rest", all - result.matmul_seconds - result.attention_seconds, 0, 0),
          row("whole", all, once.flops(), once.bytes())};
}

}  // namespace godwit
