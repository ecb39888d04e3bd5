// Matrix products of the decode phase with quantized weights: activations are rounded to 8 bits (decode_x.h), products
// are whole numbers. Bound by reading the weights for a few rows of x; any number gives the same bits.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_problem.h"

namespace godwit::cpu {

void matmul_decode(Context& context, const MatmulProblem& problem);

}  // namespace godwit::cpu
