// A table's operations that multiply, from one function that multiplies groups of products; weights in strips.
#pragma once

#include "backend/cpu/matmul_problem.h"
#include "backend/cpu/strips.h"

namespace godwit::cpu {

using MatmulOf = void(Context&, const MatmulGroup&);

template <MatmulOf kMultiply>
void fill_matmul_with(Kernels& table) {
  table.can_pack = can_pack_strips;
  table.pack = pack_strips;
  table.unpack = unpack_strips;
  table.matmul = [](Context& context, const MatmulArgs& args) {
    const MatmulProblem problem = matmul_problem(args);
    kMultiply(context, {{&problem, 1}});
  };
  table.expert_matmul = [](Context& context, const ExpertMatmulArgs& args) {
    const MatmulProblem problem = matmul_problem(args);
    kMultiply(context, {{&problem, 1}});
  };
  table.matmul_all = [](Context& context, std::span<const MatmulArgs> products) {
    std::vector<MatmulProblem> problems;
    for (const MatmulArgs& args : products) {
      GODWIT_CHECK(args.x.data == products.front().x.data && args.x.shape == products.front().x.shape &&
                   args.phase == products.front().phase);
      problems.push_back(matmul_problem(args));
    }
    if (!problems.empty()) kMultiply(context, {problems});
  };
  table.gated_matmul = [](Context& context, const MatmulArgs& gate, const MatmulArgs& up, GatedRow gated) {
    MatmulProblem problems[] = {matmul_problem(gate), matmul_problem(up)};
    problems[0].past_caches = false;  // the other reads it
    problems[1].gated = gated;
    kMultiply(context, {problems, true});
  };
}

}  // namespace godwit::cpu
