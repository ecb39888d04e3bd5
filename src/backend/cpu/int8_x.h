// Rows of activations rounded to 8 bits per block of 32, scaled by the largest magnitude over 127.
//
// Weights are scale * (code - constant) or scale * code + offset with unsigned codes, per group of 32 or 16 values. A
// unit of 256 values of x is laid out for one type of weights: its codes in the order in which the type's codes come
// out of their bytes, and beside them what each group's sum of products is to be corrected and scaled with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace godwit::cpu {

inline constexpr size_t kUnitValues = 256, kUnitChunks = kUnitValues / 16;

struct alignas(64) XUnit {
  int8_t codes[kUnitValues];
  float scales[16];    // of each group: its block's
  int32_t biases[16];  // of each group: minus the constant times the sum of its codes
  float offsets[16];   // of each group: its sum, to be multiplied with the weights' offset
};

enum class Offsets : int8_t { kNone = 0, kAdded = 1, kSubtracted = -1 };  // that a type stores

struct XLayout {
  uint8_t order[kUnitChunks];   // which 16 of the unit's values stand at each place ...
  uint8_t places[kUnitChunks];  // ... and the place of each
  uint8_t groups;               // 8 or 16
  int constant;
  Offsets offsets;

  constexpr XLayout(const std::array<uint8_t, kUnitChunks>& chunks, uint8_t count, int subtracted)
      : XLayout(chunks, count, subtracted, Offsets::kNone) {}
  constexpr XLayout(const std::array<uint8_t, kUnitChunks>& chunks, uint8_t count, Offsets stored)
      : XLayout(chunks, count, 0, stored) {}

  // A group's values stand at group_places() places.
  constexpr size_t group_places() const { return kUnitChunks / groups; }
  constexpr size_t place(size_t group, size_t i) const { return places[group * group_places() + i]; }

 private:
  constexpr XLayout(const std::array<uint8_t, kUnitChunks>& chunks, uint8_t count, int subtracted, Offsets stored)
      : order(), places(), groups(count), constant(subtracted), offsets(stored) {
    for (uint8_t at = 0; at < kUnitChunks; ++at) {
      order[at] = chunks[at];
      places[chunks[at]] = at;
    }
  }
};

// Four codes.
inline int32_t load_4(const void* from) {
  int32_t bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// Rounds `in` values into units, the last filled up with zeros. Values below 1e-30 count as 0; a NaN or an infinity in
// a block makes every output NaN. Needs has_avx2().
void quantize_x(const float* x, size_t in, const XLayout& layout, XUnit* to);

}  // namespace godwit::cpu
