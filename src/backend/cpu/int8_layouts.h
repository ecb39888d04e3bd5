// How the codes of quantized types lie in 256 values, for products in 8 bits: what every target knows of a type.
//
// A layout offers kUnitBytes, the bytes of 256 values, kX, the order in which their codes come out and what is
// subtracted from them (int8_x.h), and kLargestCode. Where two vectors hold halves of the same blocks, kSharedSums says
// so. Types of smaller blocks have kSmallBlocks, and say which bytes of a block are scales, fifth bits and codes.
#pragma once

#include "backend/cpu/int8_x.h"
#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/quant_blocks.h"

namespace godwit::cpu {

template <class Chunk>
constexpr std::array<uint8_t, kUnitChunks> order_of(Chunk chunk) {
  std::array<uint8_t, kUnitChunks> order{};
  for (unsigned place = 0; place < kUnitChunks; ++place)
    order[place] = static_cast<uint8_t>(chunk(place / 4, place % 4));  // vector and quarter of it
  return order;
}

inline constexpr auto kInOrder = order_of([](unsigned vector, unsigned quarter) { return 4 * vector + quarter; });
// Blocks of 32 in 16 bytes: the first halves of four blocks, then their second halves.
inline constexpr auto kByHalves =
    order_of([](unsigned vector, unsigned quarter) { return 2 * (vector / 2 * 4 + quarter) + vector % 2; });
// 64 values in 32 bytes, twice: the lower 32 of both, then the upper.
inline constexpr auto kByBlocks = order_of(
    [](unsigned vector, unsigned quarter) { return vector / 2 * 8 + quarter / 2 * 4 + vector % 2 * 2 + quarter % 2; });
// 128 values in 32 bytes, twice: the lowest 32 of both, and so on.
inline constexpr auto kByCrumbs =
    order_of([](unsigned vector, unsigned quarter) { return quarter / 2 * 8 + vector * 2 + quarter % 2; });

template <class Stored, size_t kScales, size_t kFifths = 0>
struct SmallBlocks {
  static constexpr bool kSmallBlocks = true, kSharedSums = true;
  static constexpr size_t kUnitBytes = 8 * sizeof(Stored);
  static constexpr size_t kScaleBytes = kScales, kFifthBytes = kFifths, kCodeBytes = sizeof(Stored) - kScales - kFifths;
};
template <class Stored>
struct SuperBlocks {
  static constexpr bool kSharedSums = false;
  static constexpr size_t kUnitBytes = sizeof(Stored);
};

struct Q4_0Layout : SmallBlocks<BlockQ4_0, 2> {
  using Layout = Q4_0Layout;
  static constexpr int kLargestCode = 15;
  static constexpr XLayout kX{kByHalves, 8, 8};
};
struct Q4_1Layout : SmallBlocks<BlockQ4_1, 4> {
  using Layout = Q4_1Layout;
  static constexpr int kLargestCode = 15;
  static constexpr XLayout kX{kByHalves, 8, Offsets::kAdded};
};
struct Q5_0Layout : SmallBlocks<BlockQ5_0, 2, 4> {
  using Layout = Q5_0Layout;
  static constexpr int kLargestCode = 31;
  static constexpr XLayout kX{kByHalves, 8, 16};
};
struct Q5_1Layout : SmallBlocks<BlockQ5_1, 4, 4> {
  using Layout = Q5_1Layout;
  static constexpr int kLargestCode = 31;
  static constexpr XLayout kX{kByHalves, 8, Offsets::kAdded};
};
struct Q8_0Layout : SmallBlocks<BlockQ8_0, 2> {
  using Layout = Q8_0Layout;
  static constexpr int kLargestCode = 255;
  static constexpr bool kSharedSums = false;
  static constexpr XLayout kX{kInOrder, 8, 128};
};
struct IQ4_NLLayout : SmallBlocks<BlockIQ4_NL, 2> {
  using Layout = IQ4_NLLayout;
  static constexpr int kLargestCode = 255;
  static constexpr XLayout kX{kByHalves, 8, 127};
};
struct MXFP4Layout : SmallBlocks<BlockMXFP4, 1> {
  using Layout = MXFP4Layout;
  static constexpr int kLargestCode = 24;
  static constexpr XLayout kX{kByHalves, 8, 12};
};
struct Q2_KLayout : SuperBlocks<BlockQ2_K> {
  using Layout = Q2_KLayout;
  static constexpr int kLargestCode = 3;
  static constexpr XLayout kX{kByCrumbs, 16, Offsets::kSubtracted};
};
struct Q3_KLayout : SuperBlocks<BlockQ3_K> {
  using Layout = Q3_KLayout;
  static constexpr int kLargestCode = 7;
  static constexpr XLayout kX{kByCrumbs, 16, 4};
};
struct Q4_KLayout : SuperBlocks<BlockQ4_K> {
  using Layout = Q4_KLayout;
  static constexpr int kLargestCode = 15;
  static constexpr XLayout kX{kByBlocks, 8, Offsets::kSubtracted};
};
struct Q5_KLayout : SuperBlocks<BlockQ5_K> {
  using Layout = Q5_KLayout;
  static constexpr int kLargestCode = 31;
  static constexpr XLayout kX{kByBlocks, 8, Offsets::kSubtracted};
};
struct Q6_KLayout : SuperBlocks<BlockQ6_K> {
  using Layout = Q6_KLayout;
  static constexpr int kLargestCode = 63;
  static constexpr XLayout kX{kInOrder, 16, 32};
};
struct IQ4_XSLayout : SuperBlocks<BlockIQ4_XS> {
  using Layout = IQ4_XSLayout;
  static constexpr int kLargestCode = 255;
  static constexpr bool kSharedSums = true;
  static constexpr XLayout kX{kByHalves, 8, 127};
};

// What Functions::of<Layout>() gives for a quantized type.
template <class Functions>
decltype(auto) of_layout(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Functions::template of<Q4_0Layout>();
    case DType::kQ4_1:
      return Functions::template of<Q4_1Layout>();
    case DType::kQ5_0:
      return Functions::template of<Q5_0Layout>();
    case DType::kQ5_1:
      return Functions::template of<Q5_1Layout>();
    case DType::kQ8_0:
      return Functions::template of<Q8_0Layout>();
    case DType::kQ2_K:
      return Functions::template of<Q2_KLayout>();
    case DType::kQ3_K:
      return Functions::template of<Q3_KLayout>();
    case DType::kQ4_K:
      return Functions::template of<Q4_KLayout>();
    case DType::kQ5_K:
      return Functions::template of<Q5_KLayout>();
    case DType::kQ6_K:
      return Functions::template of<Q6_KLayout>();
    case DType::kIQ4_NL:
      return Functions::template of<IQ4_NLLayout>();
    case DType::kIQ4_XS:
      return Functions::template of<IQ4_XSLayout>();
    case DType::kMXFP4:
      return Functions::template of<MXFP4Layout>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(false, "{} weights are not multiplied with 8 bits", dtype_name(dtype));
}

}  // namespace godwit::cpu
