// The tile unit of x86 (AMX): eight registers of up to 16 rows of 64 bytes, and C += A * B for numbers of bf16 or 8
// bits. A kernel is a template over AmxTiles, the instructions themselves, or EmulatedTiles, the same arithmetic in
// plain C++ for machines without the unit.
//
// An object configures the tiles of the thread that makes it and releases them when it dies: make one per task, use it
// on that thread, and no second one meanwhile. AmxTiles needs has_amx().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace godwit::cpu {

struct TileShape {
  int rows = 0, row_bytes = 0;  // up to 16 and 64; 0 rows: the tile is not used
};
using TileShapes = std::array<TileShape, 8>;

#if defined(__x86_64__)

// Tile numbers are part of an instruction: hence the templates, and hence assembly, whose operands the compiler's own
// intrinsics (macros over literals) cannot take from a template. Every statement is a barrier to memory: GCC 12 may
// otherwise drop the stores that fill what an instruction reads.
class AmxTiles {
 public:
  explicit AmxTiles(const TileShapes& shapes) {
    alignas(64) Config config;
    for (size_t i = 0; i < shapes.size(); ++i) {
      config.rows[i] = static_cast<uint8_t>(shapes[i].rows);
      config.row_bytes[i] = static_cast<uint16_t>(shapes[i].row_bytes);
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  ~AmxTiles() { asm volatile("tilerelease" : : : "memory"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, size_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(kTile) : "memory");
  }
  // The same, and it is not kept in the first cache.
  template <int kTile>
  void load_passing(const void* from, size_t stride_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, size_t stride_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride_bytes), "i"(kTile) : "memory");
  }
  // C[m][n] += sum over k of A[m][2k] * B[k][2n] + A[m][2k + 1] * B[k][2n + 1]; C in fp32, A and B in bf16.
  template <int kC, int kA, int kB>
  void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // The same without an object, which there must be, to keep the unit awake.
  template <int kC, int kA, int kB>
  static void multiply_for_nothing() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // C[m][n] += sum over k and four i of A[m][4k + i] * B[k][4n + i]; C in int32, A and B in int8.
  template <int kC, int kA, int kB>
  void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }

 private:
  struct Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);
};

#endif

// Rounds as Intel's manual describes TDPBF16PS: even and odd products are summed apart, each from zero in the order of
// k, then together, then added to C; subnormal numbers count as zero. What would raise an exception hits a check.
class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileShapes& shapes) : shapes_(shapes) {
    for (const TileShape& shape : shapes)
      GODWIT_CHECK(shape.rows >= 0 && shape.rows <= kRows && shape.row_bytes >= 0 && shape.row_bytes <= kRowBytes &&
                   (shape.rows == 0) == (shape.row_bytes == 0));
  }
  EmulatedTiles(const EmulatedTiles&) = delete;
  EmulatedTiles& operator=(const EmulatedTiles&) = delete;

  template <int kTile>
  void zero() {
    GODWIT_CHECK(shapes_[kTile].rows > 0);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  void load(const void* from, size_t stride_bytes) {
    zero<kTile>();
    for (int row = 0; row < shapes_[kTile].rows; ++row)
      std::memcpy(tiles_[kTile][row], static_cast<const std::byte*>(from) + static_cast<size_t>(row) * stride_bytes,
                  static_cast<size_t>(shapes_[kTile].row_bytes));
  }
  template <int kTile>
  void load_passing(const void* from, size_t stride_bytes) {
    load<kTile>(from, stride_bytes);
  }
  template <int kTile>
  void store(void* to, size_t stride_bytes) const {
    GODWIT_CHECK(shapes_[kTile].rows > 0);
    for (int row = 0; row < shapes_[kTile].rows; ++row)
      std::memcpy(static_cast<std::byte*>(to) + static_cast<size_t>(row) * stride_bytes, tiles_[kTile][row],
                  static_cast<size_t>(shapes_[kTile].row_bytes));
  }
  template <int kC, int kA, int kB>
  void dot_bf16() {
    static_assert(kC != kA && kA != kB && kB != kC);
    add_bf16(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  void dot_int8() {
    static_assert(kC != kA && kA != kB && kB != kC);
    add_int8(kC, kA, kB);
  }

 private:
  static constexpr int kRows = 16, kRowBytes = 64;
  int columns(int c, int a, int b) const;  // of C, all three fitting together
  void add_bf16(int c, int a, int b);
  void add_int8(int c, int a, int b);

  TileShapes shapes_;
  alignas(64) std::byte tiles_[8][kRows][kRowBytes] = {};
};

}  // namespace godwit::cpu
