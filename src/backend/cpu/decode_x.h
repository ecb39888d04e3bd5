// Rows of activations as the decode phase multiplies them: rounded to 8 bits per block of 32, scaled by the largest
// magnitude over 127.
//
// Weights are scale * code + offset with unsigned codes, per group of 32 or 16 values. A unit of 256 values of x is
// laid out for one type of weights: its codes in the order in which the type's codes come out of their bytes, its
// scales and sums in the lanes where the type has scales and offsets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace godwit::cpu {

inline constexpr size_t kUnitValues = 256, kUnitChunks = kUnitValues / 16;

struct alignas(64) XUnit {
  int8_t codes[kUnitValues];
  float scales[16];   // to be multiplied with the weights' scales, lane by lane
  float offsets[16];  // the groups' sums, to be multiplied with the weights' offsets, lane by lane
};

// The sixteen lanes of a type's scales and of its offsets.
enum class Lanes : uint8_t {
  kBlocks,    // lane b < 8: scale of block b; the offset is a constant times that
  kHalves,    // lane b < 8: scale of block b; lane 8 + b: what its offset is a constant times
  kPairs,     // lane 2 b: scale of block b; lane 2 b + 1: its offset
  kSixteens,  // lane i: scale of 16 values; offsets alike, or a constant times the scale
};

struct XLayout {
  uint8_t order[kUnitChunks];   // which 16 of the unit's values stand at each place ...
  uint8_t places[kUnitChunks];  // ... and the place of each
  Lanes lanes;
  int32_t scale_block[16];       // the block whose scale belongs in a lane
  int32_t sum_a[16], sum_b[16];  // the places that a lane's sum is over; of sixteens, sum_a alone
  float factor[16];              // of a lane's sum; 0 where the type has no offset

  // `constant` is the one that Lanes speaks of, or the sign of stored offsets.
  constexpr XLayout(const std::array<uint8_t, kUnitChunks>& chunks, Lanes kind, float constant)
      : order(), places(), lanes(kind), scale_block(), sum_a(), sum_b(), factor() {
    for (uint8_t place = 0; place < kUnitChunks; ++place) {
      order[place] = chunks[place];
      places[chunks[place]] = place;
    }
    for (size_t lane = 0; lane < 16; ++lane) {
      const size_t block = kind == Lanes::kPairs || kind == Lanes::kSixteens ? lane / 2 : lane % 8;
      scale_block[lane] = static_cast<int32_t>(block);
      sum_a[lane] = places[kind == Lanes::kSixteens ? lane : 2 * block];
      sum_b[lane] = places[2 * block + 1];
      const bool has_offset = kind == Lanes::kBlocks   ? lane < 8
                              : kind == Lanes::kHalves ? lane >= 8
                              : kind == Lanes::kPairs  ? lane % 2 == 1
                                                       : true;
      factor[lane] = has_offset ? constant : 0;
    }
  }

  // The lane with the scale of the 16 values at a place.
  constexpr size_t scale_lane(size_t place) const {
    const size_t chunk = order[place];
    return lanes == Lanes::kSixteens ? chunk : lanes == Lanes::kPairs ? chunk / 2 * 2 : chunk / 2;
  }
};

// Rounds `in` values into units, the last filled up with zeros. Values below 1e-30 count as 0; a NaN or an infinity in
// a block makes every output NaN or infinite.
void quantize_x(const float* x, size_t in, const XLayout& layout, XUnit* to);

}  // namespace godwit::cpu
