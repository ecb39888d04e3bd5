// Weights in strips of sixteen rows: of quantized types (int8_strips-inl.h), for targets with has_avx512_bf16(), and of
// bf16, whose strips are tiles (tile_panel.h), for those with a tile unit.
#pragma once

#include "backend/cpu/kernels.h"

namespace godwit::cpu {

// Whole units of 256 values and whole strips, of a type that has them.
bool can_pack_strips(const Tensor& w);
bool can_pack_tiles(const Tensor& w);  // bf16, too
void pack_strips(Context& context, const Tensor& rows, const Tensor& packed);
void unpack_strips(Context& context, const Tensor& packed, const Tensor& rows);

// One strip of bf16.
struct Bf16Strips {
  void (*pack)(const std::byte* rows, size_t stride, size_t units, std::byte* strip);
  void (*unpack)(const std::byte* strip, size_t stride, size_t units, std::byte* rows);
};
const Bf16Strips& bf16_strips();

}  // namespace godwit::cpu
