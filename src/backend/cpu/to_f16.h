// Numbers in fp32 to f16, as float_to_f16() of tensor/half.h rounds them, bit by bit, many at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace godwit::cpu {

void to_f16(const float* from, uint16_t* to, size_t count);

}  // namespace godwit::cpu
