// Inside src/tensor: how the codes of a block (one byte each, in element order) are packed into 4-, 2- and 1-bit
// fields.
#pragma once

#include <cstdint>

namespace godwit {

// Groups of 2 * kHalf codes: byte j of a group holds code j in its low half and code j + kHalf in its high half.
template <int kBytes, int kHalf>
void unpack_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int group = 0; group < kBytes; group += kHalf) {
    for (int j = 0; j < kHalf; ++j) codes[2 * group + j] = packed[group + j] & 15;
    for (int j = 0; j < kHalf; ++j) codes[2 * group + kHalf + j] = packed[group + j] >> 4;
  }
}

// Takes the low four bits of each code.
template <int kBytes, int kHalf>
void pack_nibbles(const uint8_t* codes, uint8_t* packed) {
  for (int group = 0; group < kBytes; group += kHalf) {
    for (int j = 0; j < kHalf; ++j) {
      const int low = codes[2 * group + j] & 15;
      const int high = codes[2 * group + kHalf + j] & 15;
      packed[group + j] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

// 256 codes of two bits in 64 bytes: in each half of 128 codes, byte j holds codes j, j + 32, j + 64, j + 96.
inline void unpack_crumbs(const uint8_t* packed, uint8_t* codes) {
  for (int half = 0; half < 2; ++half)
    for (int part = 0; part < 4; ++part)
      for (int j = 0; j < 32; ++j) codes[half * 128 + part * 32 + j] = (packed[half * 32 + j] >> (2 * part)) & 3;
}

// Takes bits kShift and kShift + 1 of each code.
template <int kShift>
void pack_crumbs(const uint8_t* codes, uint8_t* packed) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 32; ++j) {
      int byte = 0;
      for (int part = 0; part < 4; ++part) byte |= (codes[half * 128 + part * 32 + j] >> kShift & 3) << (2 * part);
      packed[half * 32 + j] = static_cast<uint8_t>(byte);
    }
  }
}

// 256 single bits in 32 bytes: bit p of byte j belongs to code 32 * p + j. They become bit kShift of the codes.
template <int kShift>
void unpack_bit_planes(const uint8_t* packed, uint8_t* codes) {
  for (int plane = 0; plane < 8; ++plane)
    for (int j = 0; j < 32; ++j)
      codes[plane * 32 + j] = static_cast<uint8_t>(codes[plane * 32 + j] | (packed[j] >> plane & 1) << kShift);
}

template <int kShift>
void pack_bit_planes(const uint8_t* codes, uint8_t* packed) {
  for (int j = 0; j < 32; ++j) {
    int byte = 0;
    for (int plane = 0; plane < 8; ++plane) byte |= (codes[plane * 32 + j] >> kShift & 1) << plane;
    packed[j] = static_cast<uint8_t>(byte);
  }
}

}  // namespace godwit
