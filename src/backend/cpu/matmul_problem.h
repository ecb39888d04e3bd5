// What matmul and expert_matmul have in common: rows of x, grouped into jobs that each meet one weight matrix.
//
// Building a problem checks the arguments. It holds pointers into the caller's tensors and lives for one operation.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/backend.h"

namespace godwit::cpu {

struct MatmulJob {
  const std::byte* weight = nullptr;  // [out, in], rows weight_stride bytes apart
  int64_t row_begin = 0, row_end = 0;
};

struct MatmulProblem {
  DType dtype = DType::kF32;
  int64_t in = 0, out = 0;
  size_t weight_stride = 0;
  std::vector<const float*> x;  // one per row, in job order
  std::vector<float*> y;
  std::vector<MatmulJob> jobs;
  const float* bias = nullptr;  // [out] or null
  bool accumulate = false;
  Phase phase = Phase::kPrefill;
};

MatmulProblem matmul_problem(const MatmulArgs& args);
MatmulProblem matmul_problem(const ExpertMatmulArgs& args);

}  // namespace godwit::cpu
