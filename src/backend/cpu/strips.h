// Weights in strips of sixteen rows: of quantized types (strip_layouts.h), the same for all targets that use them, and
// of bf16, whose strips are tiles (tile_panel.h), for those with a tile unit.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/strip_layouts.h"

namespace godwit::cpu {

// One strip and its sixteen rows, of whole units.
struct StripCopies {
  void (*pack)(const std::byte* rows, size_t stride, size_t units, std::byte* strip);
  void (*unpack)(const std::byte* strip, size_t stride, size_t units, std::byte* rows);
};
const StripCopies& strip_copies(DType dtype);  // of a quantized type
const StripCopies& bf16_strips();

// Whole units of 256 values and whole strips, of a quantized type.
bool can_pack_strips(const Tensor& w);
bool can_pack_tiles(const Tensor& w);  // or of bf16
void pack_strips(Context& context, const Tensor& rows, const Tensor& packed);
void unpack_strips(Context& context, const Tensor& packed, const Tensor& rows);

// One row of a packed matrix, in fp32.
void dequantize_strip_row(const Tensor& packed, int64_t row, float* out);

}  // namespace godwit::cpu
