#include "backend/cpu/elementwise_rows.h"

#include <cmath>

namespace godwit::cpu {

void check_embed(const Tensor& tokens, const Tensor& table, const Tensor& out) {
  check_f32(out);
  GODWIT_CHECK(tokens.dtype == DType::kI32 && tokens.rank == 1 && table.rank == 2 && table.dtype != DType::kI32);
  GODWIT_CHECK(out.rows() == tokens.rows() && out.row_elements() == table.shape[1]);
  const auto* ids = reinterpret_cast<const int32_t*>(tokens.data);
  for (int64_t i = 0; i < tokens.rows(); ++i)
    GODWIT_CHECK(ids[i] >= 0 && ids[i] < table.rows(), "token {} of {}", ids[i], table.rows());
}

void check_gather_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
  check_f32(x);
  check_f32(out);
  GODWIT_CHECK(rows.dtype == DType::kI32 && rows.rank == 1);
  GODWIT_CHECK(out.rows() == rows.rows() && out.row_elements() == x.row_elements());
  const auto* ids = reinterpret_cast<const int32_t*>(rows.data);
  for (int64_t i = 0; i < rows.rows(); ++i)
    GODWIT_CHECK(ids[i] >= 0 && ids[i] < x.rows(), "row {} of {}", ids[i], x.rows());
}

void check_rms_norm(const Tensor& x, const Tensor& weight, const Tensor& out) {
  check_same_shape(x, out);
  check_f32(weight);
  GODWIT_CHECK(weight.rank == 1 && x.rank >= 2 && x.shape[static_cast<size_t>(x.rank) - 1] == weight.shape[0]);
}

void check_rope(const RopeArgs& args) {
  check_f32(args.x);
  check_f32(args.inv_freq);
  GODWIT_CHECK(args.x.rank == 3 && args.positions.rank == 1 && args.inv_freq.rank == 1);
  GODWIT_CHECK(args.positions.dtype == DType::kI32 && args.positions.rows() == args.x.rows());
  GODWIT_CHECK(2 * args.inv_freq.shape[0] <= args.x.shape[2]);
}

void check_combine_experts(const Tensor& x, const Tensor& weights, const Tensor& out) {
  check_f32(x);
  check_f32(weights);
  check_f32(out);
  GODWIT_CHECK(weights.rank == 2 && weights.rows() == out.rows() && x.rows() == out.rows() * weights.shape[1] &&
               x.row_elements() == out.row_elements());
}

void rope_table(const RopeArgs& args, int64_t row, float* cosines, float* sines) {
  const auto position = static_cast<float>(reinterpret_cast<const int32_t*>(args.positions.data)[row]);
  const auto* inv_freq = reinterpret_cast<const float*>(args.inv_freq.data);
  for (int64_t i = 0; i < args.inv_freq.shape[0]; ++i) {
    const float angle = position * inv_freq[i];
    cosines[i] = std::cos(angle) * args.magnitude;
    sines[i] = std::sin(angle) * args.magnitude;
  }
}

}  // namespace godwit::cpu
