// Matrix products with quantized weights and activations rounded to 8 bits (int8_dot.h). Bound by reading the weights
// for a few rows of x, by multiplying for many; any number gives the same bits.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul_problem.h"

namespace godwit::cpu {

void matmul_int8(Context& context, const MatmulGroup& group);

}  // namespace godwit::cpu
