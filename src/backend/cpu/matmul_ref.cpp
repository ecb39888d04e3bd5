// The reference: one output at a time, summed in double.
#include <vector>

#include "backend/cpu/elementwise_rows.h"
#include "tensor/quant.h"

namespace godwit::cpu {
namespace {

std::vector<float> expanded(DType dtype, const std::byte* row, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  dequantize(dtype, row, values.data(), values.size());
  return values;
}

double dot(const float* x, const std::vector<float>& w) {
  double sum = 0;
  for (size_t k = 0; k < w.size(); ++k) sum += static_cast<double>(x[k]) * static_cast<double>(w[k]);
  return sum;
}

void matmul(Context& context, const MatmulArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  GODWIT_CHECK(x.shape[1] == w.shape[1] && y.shape[1] == w.shape[0] && x.rows() == y.rows());
  const auto* bias = reinterpret_cast<const float*>(args.bias.data);
  context.pool.parallel_for(w.rows(), [&](int64_t n) {
    const std::vector<float> weights = expanded(w.dtype, row_of<const std::byte>(w, n), w.shape[1]);
    for (int64_t m = 0; m < x.rows(); ++m) {
      double value = dot(row_of<const float>(x, m), weights);
      if (bias != nullptr) value += bias[n];
      if (args.accumulate) value += row_of<float>(y, m)[n];
      row_of<float>(y, m)[n] = static_cast<float>(value);
    }
  });
}

void expert_matmul(Context& context, const ExpertMatmulArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y, &ids = args.ids;
  const int64_t experts = w.shape[0], out = w.shape[1], in = w.shape[2], per_token = ids.shape[1];
  GODWIT_CHECK(x.shape[1] == in && y.shape[1] == out && y.rows() == ids.rows() * per_token);
  GODWIT_CHECK(x.rows() == ids.rows() || x.rows() == y.rows());
  const size_t row_bytes = dtype_bytes(w.dtype, static_cast<size_t>(in));
  context.pool.parallel_for(y.rows(), [&](int64_t row) {
    const int32_t expert = row_of<const int32_t>(ids, row / per_token)[row % per_token];
    GODWIT_CHECK(expert >= 0 && expert < experts, "expert {} of {}", expert, experts);
    const float* from = row_of<const float>(x, x.rows() == y.rows() ? row : row / per_token);
    for (int64_t n = 0; n < out; ++n) {
      const std::byte* weight = row_of<const std::byte>(w, expert) + static_cast<size_t>(n) * row_bytes;
      row_of<float>(y, row)[n] = static_cast<float>(dot(from, expanded(w.dtype, weight, in)));
    }
  });
}

}  // namespace

void fill_matmul_ref(Kernels& table) {
  table.matmul = table.matmul_f32 = matmul;
  table.expert_matmul = table.expert_matmul_f32 = expert_matmul;
}

}  // namespace godwit::cpu
