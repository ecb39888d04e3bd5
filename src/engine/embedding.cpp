#include "engine/embedding.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace godwit {

void EmbeddingSum::add(const Model& model, Workspace& workspace, Backend& backend, int32_t begin, int32_t end) {
  const auto dim = static_cast<size_t>(model.config().dim);
  sum_.resize(dim);
  std::vector<int32_t> rows;
  std::vector<float> values;
  for (int32_t from = begin; from < end;) {
    rows.resize(static_cast<size_t>(std::min(end - from, workspace.max_logit_rows())));
    std::iota(rows.begin(), rows.end(), from);
    from += static_cast<int32_t>(rows.size());
    values.resize(rows.size() * dim);
    backend.download(std::as_writable_bytes(std::span(values)), model.hidden(workspace, rows).data);
    for (size_t i = 0; i < values.size(); ++i) sum_[i % dim] += static_cast<double>(values[i]);
  }
}

std::vector<float> EmbeddingSum::unit_mean() const {
  double squares = 0;
  for (double value : sum_) squares += value * value;
  std::vector<float> result(sum_.size());
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (size_t i = 0; i < sum_.size(); ++i) result[i] = static_cast<float>(sum_[i] * scale);
  return result;
}

}  // namespace godwit
