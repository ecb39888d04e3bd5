#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/partials.h"

namespace godwit::cpu {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr int64_t kRowsPerItem = 16;

// The same bits whichever of the two is `into`.
void merge_head(float* out, float* lse, const float* other, float other_lse, size_t head_dim) {
  if (other_lse == kEmpty) return;
  if (*lse == kEmpty) {
    std::copy_n(other, head_dim, out);
    *lse = other_lse;
    return;
  }
  const float top = std::max(*lse, other_lse);
  const float a = std::exp(*lse - top), b = std::exp(other_lse - top);
  const float sum = a + b;
  const float wa = a / sum, wb = b / sum;
  for (size_t i = 0; i < head_dim; ++i) out[i] = out[i] * wa + other[i] * wb;
  *lse = top + std::log(sum);
}

}  // namespace

void merge_partials(Context& context, const AttnPartial& into, const AttnPartial& from) {
  GODWIT_CHECK(into.out.rank == 3 && into.lse.rank == 2);
  GODWIT_CHECK(into.out.dtype == DType::kF32 && into.lse.dtype == DType::kF32);
  GODWIT_CHECK(from.out.dtype == DType::kF32 && from.lse.dtype == DType::kF32);
  GODWIT_CHECK(into.out.shape == from.out.shape && into.lse.shape == from.lse.shape);
  GODWIT_CHECK(into.lse.shape[0] == into.out.shape[0] && into.lse.shape[1] == into.out.shape[1]);
  const int64_t rows = into.out.shape[0];
  const auto heads = static_cast<size_t>(into.out.shape[1]), head_dim = static_cast<size_t>(into.out.shape[2]);
  auto row_of = [](const Tensor& tensor, int64_t row) {
    return reinterpret_cast<float*>(tensor.data + static_cast<size_t>(row) * tensor.row_stride_bytes);
  };
  context.pool.parallel_for((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
    const int64_t end = std::min(rows, (item + 1) * kRowsPerItem);
    for (int64_t row = item * kRowsPerItem; row < end; ++row)
      for (size_t head = 0; head < heads; ++head)
        merge_head(row_of(into.out, row) + head * head_dim, row_of(into.lse, row) + head,
                   row_of(from.out, row) + head * head_dim, row_of(from.lse, row)[head], head_dim);
  });
}

}  // namespace godwit::cpu
