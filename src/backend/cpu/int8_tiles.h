// Operands of 8 bits for tiles: rows of activations and of weights, rounded anew per unit of 256 values.
//
// A unit has one scale. That of activations is their largest magnitude over 127; that of weights, the largest magnitude
// that codes could have in any of the unit's groups, over 127. So products of a whole unit are summed as whole numbers.
// A weight comes out within 0.55 of a step. Needs has_avx512_bf16().
//
// Both operands hold a unit's values in the order in which the type's codes come out of their bytes (int8_x.h).
#pragma once

#include "backend/cpu/bf16_expand.h"
#include "backend/cpu/int8_x.h"
#include "tensor/dtype.h"

namespace godwit::cpu {

inline constexpr size_t kInt8Block = 64;  // values of a line
inline constexpr size_t kInt8UnitBlocks = kUnitValues / kInt8Block;

struct Int8TileType {
  const XLayout& x;
  // One unit, or what is left of it, of up to 16 rows: block i of row r to line 16 * i + r, and the rows' scales behind
  // the lines.
  ExpandRows expand;
  // The same as tiles (tile_panel.h), of a whole strip. Null: the type has none.
  ExpandRows expand_strips;
};

// For every quantized type.
const Int8TileType& int8_tile_type(DType dtype);

// One unit of up to 16 rows, `rows[i]` for i < count, of which values [begin, end) are there: [block of 64][width]
// lines, and scales[width]. Values below 1e-30 count as 0; a NaN or an infinity makes all of the row's outputs NaN.
void pack_int8_tiles(const XLayout& layout, const float* const* rows, size_t count, size_t width, size_t begin,
                     size_t end, std::byte* to);

}  // namespace godwit::cpu
