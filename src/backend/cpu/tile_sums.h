// What kernels in tiles share: sums of 16 weight rows with 16 rows of x, and lines on their way.
#pragma once

#include "backend/cpu/bf16_vectors.h"

namespace godwit::cpu {

inline constexpr size_t kTile = 16;  // rows of a tile, and columns of 32 bits
inline constexpr size_t kSumStride = kTile * sizeof(float), kTileFloats = kTile * kTile, kTileBytes = 1024;

// What the next block or tile needs, on its way from the second cache to the first. It may not be there.
struct LinesAhead {
  const void* from;
  size_t bytes;

  void fetch() const {
    for (size_t line = 0; line < bytes; line += 64) _mm_prefetch(static_cast<const char*>(from) + line, _MM_HINT_T0);
  }
};

GODWIT_BF16_BEGIN

// C tiles [weight row][16] to sums[x row][weight row].
inline void store_transposed(const float* tiles, size_t count, size_t x_rows, size_t stride, float* sums) {
  for (size_t i = 0; i < count; ++i) {
    __m512i v[kTile];
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r) v[r] = _mm512_load_si512(tiles + (i * kTile + r) * kTile);
    transpose(v);
#pragma GCC unroll 16
    for (size_t r = 0; r < kTile; ++r)
      if (r < x_rows) _mm512_store_si512(sums + r * stride + i * kTile, v[r]);
  }
}

GODWIT_BF16_END

}  // namespace godwit::cpu
