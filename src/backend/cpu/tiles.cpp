#include "backend/cpu/tiles.h"

#include <bit>
#include <cfloat>
#include <cmath>

namespace godwit::cpu {
namespace {

// A product of two bf16 numbers is exact in fp32, so a multiplication and an addition round like one fused operation.
struct Pair {
  float even, odd;
};

float flushed(float value) {
  return std::fabs(value) < FLT_MIN ? std::copysign(0.0F, value) : value;
}

Pair load_pair(const std::byte* from) {
  uint32_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return {flushed(std::bit_cast<float>(bits << 16)), flushed(std::bit_cast<float>(bits & 0xFFFF0000U))};
}

}  // namespace

int EmulatedTiles::columns(int c, int a, int b) const {
  const TileShape &into = shapes_[static_cast<size_t>(c)], &left = shapes_[static_cast<size_t>(a)],
                  &right = shapes_[static_cast<size_t>(b)];
  GODWIT_CHECK(into.rows > 0 && into.rows == left.rows && into.row_bytes == right.row_bytes &&
               left.row_bytes == 4 * right.rows && into.row_bytes % 4 == 0);
  return into.row_bytes / 4;
}

void EmulatedTiles::add_bf16(int c, int a, int b) {
  const int count = columns(c, a, b), depth = shapes_[static_cast<size_t>(b)].rows;
  Pair factors[kRows][kRows];
  for (int k = 0; k < depth; ++k)
    for (int n = 0; n < count; ++n) factors[k][n] = load_pair(tiles_[b][k] + 4 * n);
  for (int m = 0; m < shapes_[static_cast<size_t>(c)].rows; ++m) {
    Pair sums[kRows] = {};
    for (int k = 0; k < depth; ++k) {
      const Pair factor = load_pair(tiles_[a][m] + 4 * k);
      for (int n = 0; n < count; ++n) {
        sums[n].even += factor.even * factors[k][n].even;
        sums[n].odd += factor.odd * factors[k][n].odd;
      }
    }
    for (int n = 0; n < count; ++n) {
      float value;
      std::memcpy(&value, tiles_[c][m] + 4 * n, sizeof value);
      value = flushed(value + flushed(sums[n].even + sums[n].odd));
      std::memcpy(tiles_[c][m] + 4 * n, &value, sizeof value);
    }
  }
}

void EmulatedTiles::add_int8(int c, int a, int b) {
  const int count = columns(c, a, b), depth = shapes_[static_cast<size_t>(b)].rows;
  for (int m = 0; m < shapes_[static_cast<size_t>(c)].rows; ++m) {
    int32_t sums[kRows] = {};
    std::memcpy(sums, tiles_[c][m], static_cast<size_t>(count) * sizeof(int32_t));
    for (int k = 0; k < depth; ++k)
      for (int n = 0; n < count; ++n)
        for (int i = 0; i < 4; ++i)
          sums[n] += static_cast<int8_t>(tiles_[a][m][4 * k + i]) * static_cast<int8_t>(tiles_[b][k][4 * n + i]);
    std::memcpy(tiles_[c][m], sums, static_cast<size_t>(count) * sizeof(int32_t));
  }
}

}  // namespace godwit::cpu
