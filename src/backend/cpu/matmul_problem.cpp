#include "backend/cpu/matmul_problem.h"

#include "backend/cpu/elementwise_rows.h"

namespace godwit::cpu {
namespace {

constexpr size_t kMoreThanCache = size_t{4} << 20;  // twice the second cache of the machines with tiles

bool whole_lines(const Tensor& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 64 == 0 && rows.row_stride_bytes % 64 == 0;
}

}  // namespace

MatmulProblem matmul_problem(const MatmulArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  GODWIT_CHECK(x.rank == 2 && w.rank == 2 && y.rank == 2);
  GODWIT_CHECK(x.dtype == DType::kF32 && y.dtype == DType::kF32 && w.dtype != DType::kI32);
  GODWIT_CHECK(x.shape[1] == w.shape[1] && y.shape[1] == w.shape[0] && x.shape[0] == y.shape[0],
               "[{}, {}] x [{}, {}] -> [{}, {}]", x.shape[0], x.shape[1], w.shape[0], w.shape[1], y.shape[0],
               y.shape[1]);
  GODWIT_CHECK(!args.bias ||
               (args.bias.dtype == DType::kF32 && args.bias.rank == 1 && args.bias.shape[0] == w.shape[0]));
  MatmulProblem problem;
  GODWIT_CHECK(w.shape[1] > 0 && w.shape[1] % dtype_info(w.dtype).block_elements == 0);
  problem.dtype = w.dtype;
  problem.in = w.shape[1];
  problem.out = w.shape[0];
  problem.weight_stride = w.row_stride_bytes;
  problem.bias = reinterpret_cast<const float*>(args.bias.data);
  problem.accumulate = args.accumulate;
  problem.phase = args.phase;
  problem.packed = w.packed;
  problem.past_caches = !args.accumulate && whole_lines(y) && y.bytes() >= kMoreThanCache;
  problem.jobs.push_back({w.data, 0, x.rows()});
  for (int64_t row = 0; row < x.rows(); ++row) {
    problem.x.push_back(row_of<const float>(x, row));
    problem.y.push_back(row_of<float>(y, row));
  }
  return problem;
}

MatmulProblem matmul_problem(const ExpertMatmulArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y, &ids = args.ids;
  GODWIT_CHECK(x.rank == 2 && w.rank == 3 && y.rank == 2 && ids.rank == 2);
  GODWIT_CHECK(x.dtype == DType::kF32 && y.dtype == DType::kF32 && ids.dtype == DType::kI32 && w.dtype != DType::kI32);
  int64_t tokens = ids.shape[0], per_token = ids.shape[1], rows = tokens * per_token;
  GODWIT_CHECK(x.rows() == tokens || x.rows() == rows);
  GODWIT_CHECK(y.rows() == rows && x.shape[1] == w.shape[2] && y.shape[1] == w.shape[1]);

  GODWIT_CHECK(w.shape[2] > 0 && w.shape[2] % dtype_info(w.dtype).block_elements == 0);

  MatmulProblem problem;
  problem.dtype = w.dtype;
  problem.in = w.shape[2];
  problem.out = w.shape[1];
  problem.weight_stride = dtype_bytes(w.dtype, static_cast<size_t>(problem.in));
  problem.phase = args.phase;
  problem.packed = w.packed;

  // A counting sort by expert; rows of one expert keep their order.
  auto id_of = [&](int64_t row) { return row_of<const int32_t>(ids, row / per_token)[row % per_token]; };
  std::vector<int64_t> next(static_cast<size_t>(w.shape[0]) + 1, 0);
  for (int64_t row = 0; row < rows; ++row) {
    int32_t id = id_of(row);
    GODWIT_CHECK(id >= 0 && id < w.shape[0], "expert {} of {}", id, w.shape[0]);
    ++next[static_cast<size_t>(id) + 1];
  }
  for (size_t expert = 0; expert + 1 < next.size(); ++expert) {
    next[expert + 1] += next[expert];
    if (next[expert] < next[expert + 1])
      problem.jobs.push_back({w.data + expert * w.row_stride_bytes, next[expert], next[expert + 1]});
  }
  problem.x.resize(static_cast<size_t>(rows));
  problem.y.resize(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    auto place = static_cast<size_t>(next[static_cast<size_t>(id_of(row))]++);
    problem.x[place] = row_of<const float>(x, x.rows() == rows ? row : row / per_token);
    problem.y[place] = row_of<float>(y, row);
  }
  return problem;
}

}  // namespace godwit::cpu
