#include <algorithm>

#include "model/decoder.h"

namespace godwit {
namespace {

// Hands out consecutive pieces of a block; with no block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  Tensor operator()(int64_t rows, int64_t columns, DType dtype = DType::kF32) {
    Tensor tensor(at(), dtype, {rows, columns});
    used_ += (tensor.bytes() + 63) / 64 * 64;
    return tensor;
  }
  Tensor apart(int64_t rows, int64_t columns) {
    const Tensor tensor = Workspace::rows_apart(at(), rows, columns);
    used_ += static_cast<size_t>(rows) * tensor.row_stride_bytes;
    return tensor;
  }
  size_t used() const { return used_; }

 private:
  std::byte* at() const { return base_ == nullptr ? nullptr : base_ + used_; }

  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace

Tensor Workspace::rows_apart(std::byte* at, int64_t rows, int64_t columns) {
  constexpr size_t kLine = 64, kSameSets = 1024, kApart = 4 * kLine;
  Tensor tensor(at, DType::kF32, {rows, columns});
  tensor.row_stride_bytes = (tensor.row_stride_bytes + kLine - 1) / kLine * kLine;
  if (tensor.row_stride_bytes % kSameSets == 0) tensor.row_stride_bytes += kApart;
  return tensor;
}

size_t Workspace::bytes(const ModelConfig& config, int max_rows, int max_logit_rows) {
  Workspace dry;
  return dry.carve(nullptr, config, max_rows, max_logit_rows);
}

size_t Workspace::carve(std::byte* base, const ModelConfig& c, int rows, int logit_rows) {
  Carver carve(base);
  const int64_t expert_rows = static_cast<int64_t>(rows) * c.experts_per_token;
  const auto numbers = [](int64_t rows_of, int64_t columns) {
    return rows_of * static_cast<int64_t>(rows_apart(nullptr, rows_of, columns).row_stride_bytes / sizeof(float));
  };
  const int64_t ffn = std::max(numbers(rows, c.ffn_dim), numbers(expert_rows, c.expert_ffn_dim));
  max_rows_ = rows;
  max_logit_rows_ = logit_rows;
  tokens_ = carve(rows, 1, DType::kI32);
  positions_ = carve(rows, 1, DType::kI32);
  hidden_ = carve.apart(rows, c.dim);
  normed_ = carve.apart(rows, c.dim);
  projected_ = carve.apart(rows, c.dim);
  q_ = carve(rows, c.q_dim());
  attended_ = carve(rows, c.q_dim());
  k_ = carve(rows, c.kv_dim());
  v_ = carve(rows, c.kv_dim());
  lse_ = carve(rows, c.heads);
  attention_state_ = carve(rows, c.heads * attention_state_width(c.head_dim));
  gate_ = carve(1, ffn);
  up_ = carve(1, ffn);
  if (c.experts > 0) {
    router_ = carve(rows, c.experts);
    expert_weights_ = carve(rows, c.experts_per_token);
    expert_ids_ = carve(rows, c.experts_per_token, DType::kI32);
    expert_out_ = carve.apart(expert_rows, c.dim);
  }
  logit_rows_ = carve(logit_rows, 1, DType::kI32);
  logit_hidden_ = carve(logit_rows, c.dim);
  logits_ = carve(logit_rows, c.vocab_size);
  return carve.used();
}

Result<Workspace> Workspace::create(Backend& backend, const ModelConfig& config, int max_rows, int max_logit_rows) {
  GODWIT_CHECK(max_rows > 0 && max_logit_rows > 0 && max_logit_rows <= max_rows);
  Workspace workspace;
  GODWIT_ASSIGN(workspace.memory_, backend.allocate(bytes(config, max_rows, max_logit_rows)));
  workspace.carve(workspace.memory_.data(), config, max_rows, max_logit_rows);
  return workspace;
}

}  // namespace godwit
