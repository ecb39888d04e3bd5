// Weights in strips of sixteen rows (int8_strips-inl.h), for targets with has_avx512_bf16().
#pragma once

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

// Whole units of 256 values and whole strips, of a type that has them.
bool can_pack_strips(const Tensor& w);
void pack_strips(Context& context, const Tensor& rows, const Tensor& packed);
void unpack_strips(Context& context, const Tensor& packed, const Tensor& rows);

}  // namespace godwit::cpu
