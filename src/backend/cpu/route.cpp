// Which experts a token goes to. A few hundred numbers per token: plain code in double serves every target.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/cpu/elementwise_rows.h"

namespace godwit::cpu {
namespace {

void route_row(const float* logits, size_t experts, int32_t* ids, float* weights, size_t count, bool normalize) {
  std::vector<int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  // NaN sorts last, so the order is strict whatever the logits are.
  const auto key = [&](int32_t i) { return std::isnan(logits[i]) ? -INFINITY : logits[i]; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  std::vector<double> exponentials(experts);
  double all = 0, chosen = 0;
  for (size_t i = 0; i < experts; ++i) {
    exponentials[i] = std::exp(static_cast<double>(logits[i]) - logits[order[0]]);
    all += exponentials[i];
  }
  for (size_t j = 0; j < count; ++j) chosen += exponentials[static_cast<size_t>(order[j])];
  for (size_t j = 0; j < count; ++j) {
    ids[j] = order[j];
    weights[j] = static_cast<float>(exponentials[static_cast<size_t>(order[j])] / (normalize ? chosen : all));
  }
}

void route(Context& context, const RouteArgs& args) {
  check_f32(args.logits);
  check_f32(args.weights);
  GODWIT_CHECK(args.ids.dtype == DType::kI32 && args.logits.rank == 2 && args.ids.rank == 2 && args.weights.rank == 2);
  const int64_t experts = args.logits.shape[1], count = args.ids.shape[1];
  GODWIT_CHECK(count >= 1 && count <= experts && args.weights.shape[1] == count);
  GODWIT_CHECK(args.ids.rows() == args.logits.rows() && args.weights.rows() == args.logits.rows());
  constexpr int64_t kCostPerExpert = 16;
  for_rows(context, args.logits.rows(), experts * kCostPerExpert, [&](int64_t row) {
    route_row(row_of<const float>(args.logits, row), static_cast<size_t>(experts), row_of<int32_t>(args.ids, row),
              row_of<float>(args.weights, row), static_cast<size_t>(count), args.normalize);
  });
}

}  // namespace

void fill_route(Kernels& table) {
  table.route = route;
}

}  // namespace godwit::cpu
