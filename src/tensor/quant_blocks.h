// The blocks of the quantized types as they lie in a GGUF file; docs/formats/quantized-blocks.md says what they mean.
//
// All are little-endian and without padding. A block in a file may have any alignment: copy it out with load_block().
// Scales named `d` (and minima `m`, `dmin`) are f16 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace godwit {

inline constexpr int kSmallBlock = 32;   // elements of a legacy, IQ4_NL or MXFP4 block
inline constexpr int kSuperBlock = 256;  // elements of a K or IQ4_XS block

struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];  // byte j: element j low, element j + 16 high
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];  // bit j: fifth bit of element j
  uint8_t qs[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};

struct BlockQ2_K {
  uint8_t scales[16];  // scale low, minimum high
  uint8_t qs[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
struct BlockMXFP4 {
  uint8_t e;  // e8m0
  uint8_t qs[16];
};

// The 16 levels of IQ4_NL and IQ4_XS, and those of MXFP4 (doubled, so that they are whole).
inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockMXFP4) == 17);

template <class Block>
Block load_block(const std::byte* from) {
  Block block;
  std::memcpy(&block, from, sizeof block);
  return block;
}

template <class Block>
void store_block(const Block& block, std::byte* to) {
  std::memcpy(to, &block, sizeof block);
}

}  // namespace godwit
