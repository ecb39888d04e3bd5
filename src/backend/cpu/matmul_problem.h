// What matmul and expert_matmul have in common: rows of x, grouped into jobs that each meet one weight matrix.
//
// Building a problem checks the arguments. It holds pointers into the caller's tensors and lives for one operation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

struct MatmulJob {
  const std::byte* weight = nullptr;  // [out, in], rows weight_stride bytes apart
  int64_t row_begin = 0, row_end = 0;
};

struct MatmulProblem {
  DType dtype = DType::kF32;
  int64_t in = 0, out = 0;
  size_t weight_stride = 0;
  bool packed = false;          // sixteen rows, which take what they took before, lie together (int8_strips-inl.h)
  std::vector<const float*> x;  // one per row, in job order
  std::vector<float*> y;
  std::vector<MatmulJob> jobs;
  const float* bias = nullptr;  // [out] or null
  bool accumulate = false;
  bool past_caches = false;  // outputs are whole lines, and too many to be found in a cache by who reads them
  GatedRow gated = nullptr;  // y = gated(y, sum)
  Phase phase = Phase::kPrefill;
};

// Products of the same rows of x, grouped into jobs in the same way, at the same time.
struct MatmulGroup {
  std::span<const MatmulProblem> products;
  bool in_turn = false;  // an output of one needs the same output of the one before it

  // fn(products) for what a task can take: each alone, or all in their order.
  template <class Fn>
  void for_units(Fn&& fn) const {
    if (in_turn) return fn(products);
    for (const MatmulProblem& problem : products) fn(std::span(&problem, 1));
  }
  size_t outputs() const {  // of one job
    size_t count = 0;
    for_units([&](std::span<const MatmulProblem> unit) { count += static_cast<size_t>(unit.front().out); });
    return count;
  }
};

// fn(group), or fn of one after the other where they are not all alike.
template <class Alike, class Fn>
void run_together(const MatmulGroup& group, Alike&& alike, Fn&& fn) {
  const auto differs = [&](const MatmulProblem& problem) { return !alike(group.products.front(), problem); };
  if (std::none_of(group.products.begin(), group.products.end(), differs)) return fn(group);
  for (const MatmulProblem& problem : group.products) fn(MatmulGroup{{&problem, 1}});
}

MatmulProblem matmul_problem(const MatmulArgs& args);
MatmulProblem matmul_problem(const ExpertMatmulArgs& args);

}  // namespace godwit::cpu
