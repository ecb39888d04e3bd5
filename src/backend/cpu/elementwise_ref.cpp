// The references: plain loops, in double between one fp32 input and one fp32 output.
#include <cmath>
#include <vector>

#include "backend/cpu/elementwise_rows.h"
#include "tensor/quant.h"

namespace godwit::cpu {
namespace {

void embed(Context&, Tensor tokens, Tensor table, float scale, Tensor out) {
  check_embed(tokens, table, out);
  GODWIT_CHECK(!table.packed);
  for (int64_t i = 0; i < out.rows(); ++i) {
    const int32_t id = reinterpret_cast<const int32_t*>(tokens.data)[i];
    dequantize(table.dtype, row_of<const std::byte>(table, id), row_of(out, i), static_cast<size_t>(table.shape[1]));
    for (int64_t k = 0; k < table.shape[1]; ++k) row_of(out, i)[k] *= scale;
  }
}

void gather_rows(Context&, Tensor x, Tensor rows, Tensor out) {
  check_gather_rows(x, rows, out);
  for (int64_t i = 0; i < out.rows(); ++i)
    for (int64_t k = 0; k < x.row_elements(); ++k)
      row_of(out, i)[k] = row_of(x, reinterpret_cast<const int32_t*>(rows.data)[i])[k];
}

void rms_norm(Context&, Tensor x, Tensor weight, float eps, Tensor out) {
  check_rms_norm(x, weight, out);
  const int64_t dim = weight.shape[0];
  for (int64_t row = 0; row < x.rows(); ++row) {
    for (int64_t begin = 0; begin < x.row_elements(); begin += dim) {
      const float* from = row_of(x, row) + begin;
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(from[i]) * from[i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
      for (int64_t i = 0; i < dim; ++i)
        row_of(out, row)[begin + i] =
            static_cast<float>(from[i] * scale * reinterpret_cast<const float*>(weight.data)[i]);
    }
  }
}

void rope(Context&, const RopeArgs& args) {
  check_rope(args);
  const int64_t half = args.inv_freq.shape[0];
  std::vector<float> cosines(static_cast<size_t>(half)), sines(static_cast<size_t>(half));
  for (int64_t row = 0; row < args.x.rows(); ++row) {
    rope_table(args, row, cosines.data(), sines.data());
    for (int64_t head = 0; head < args.x.shape[1]; ++head) {
      float* x = row_of(args.x, row) + head * args.x.shape[2];
      for (int64_t i = 0; i < half; ++i) {
        float& a = args.style == RopeStyle::kHalves ? x[i] : x[2 * i];
        float& b = args.style == RopeStyle::kHalves ? x[half + i] : x[2 * i + 1];
        const double c = cosines[static_cast<size_t>(i)], s = sines[static_cast<size_t>(i)];
        const double rotated_a = a * c - b * s, rotated_b = b * c + a * s;
        a = static_cast<float>(rotated_a);
        b = static_cast<float>(rotated_b);
      }
    }
  }
}

double activate(Activation kind, double x) {
  if (kind == Activation::kSilu) return x / (1 + std::exp(-x));
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));  // x / 2 * (1 + tanh(u)) without its cancellation
}

void gated(Context&, Activation kind, Tensor gate, Tensor up, Tensor out) {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  for (int64_t row = 0; row < out.rows(); ++row)
    for (int64_t i = 0; i < out.row_elements(); ++i)
      row_of(out, row)[i] = static_cast<float>(activate(kind, row_of(gate, row)[i]) * row_of(up, row)[i]);
}

void add(Context&, Tensor x, Tensor y) {
  check_same_shape(x, y);
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t i = 0; i < x.row_elements(); ++i) row_of(x, row)[i] += row_of(y, row)[i];
}

void softcap(Context&, Tensor x, float cap) {
  check_f32(x);
  for (int64_t row = 0; row < x.rows(); ++row)
    for (int64_t i = 0; i < x.row_elements(); ++i) {
      float& value = row_of(x, row)[i];
      value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
    }
}

void combine_experts(Context&, Tensor x, Tensor weights, Tensor out) {
  check_combine_experts(x, weights, out);
  const int64_t count = weights.shape[1];
  for (int64_t row = 0; row < out.rows(); ++row)
    for (int64_t i = 0; i < out.row_elements(); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < count; ++j)
        sum += static_cast<double>(row_of(weights, row)[j]) * row_of(x, row * count + j)[i];
      row_of(out, row)[i] = static_cast<float>(sum);
    }
}

}  // namespace

void fill_elementwise_ref(Kernels& table) {
  table.embed = embed;
  table.gather_rows = gather_rows;
  table.rms_norm = rms_norm;
  table.rope = rope;
  table.gated = gated;
  table.add = add;
  table.softcap = softcap;
  table.combine_experts = combine_experts;
}

}  // namespace godwit::cpu
