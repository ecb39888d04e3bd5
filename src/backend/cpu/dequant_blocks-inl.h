// More row types for dequant-inl.h: the quantized types that the matmul expands into panels only.
//
// Every product of scale and code is exact in fp32 (at most 24 significant bits), so fusing the subtraction of a
// minimum rounds as godwit::dequantize() does.
#if defined(GODWIT_BACKEND_CPU_DEQUANT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_BACKEND_CPU_DEQUANT_BLOCKS_INL_H_
#undef GODWIT_BACKEND_CPU_DEQUANT_BLOCKS_INL_H_
#else
#define GODWIT_BACKEND_CPU_DEQUANT_BLOCKS_INL_H_
#endif

#include "backend/cpu/dequant-inl.h"
#include "tensor/quant_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;

HWY_INLINE IntVec load_bytes(const uint8_t* from) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), from));
}
HWY_INLINE IntVec low_bits(IntVec v, int mask) {
  return hn::And(v, hn::Set(IntTag(), mask));
}
HWY_INLINE FloatVec to_float(IntVec v) {
  return hn::ConvertTo(FloatTag(), v);
}
HWY_INLINE FloatVec broadcast(float value) {
  return hn::Set(FloatTag(), value);
}

// Vector i of 2 * kHalf codes: the low halves of kHalf bytes, then the high halves.
template <size_t kHalf>
HWY_INLINE IntVec nibbles(const uint8_t* bytes, size_t i) {
  const IntVec loaded = load_bytes(bytes + i * kLanes % kHalf);
  return i * kLanes < kHalf ? low_bits(loaded, 15) : hn::ShiftRight<4>(loaded);
}

// Bit `lane` of a block's 32 fifth bits, as 16 or 0, for vector i.
HWY_INLINE IntVec fifth_bits(const uint8_t* packed, size_t i) {
  const hn::RebindToUnsigned<FloatTag> du;
  uint32_t bits;
  std::memcpy(&bits, packed, sizeof(bits));
  const auto shifted = hn::Shr(hn::Set(du, bits), hn::Iota(du, static_cast<uint32_t>(i * kLanes)));
  return hn::BitCast(IntTag(), hn::ShiftLeft<4>(hn::And(shifted, hn::Set(du, 1))));
}

template <class Stored, int kOffset>
struct OffsetBlock {  // Q5_0: scale * (code - offset)
  const Stored* block;
  FloatVec scale;
  HWY_INLINE OffsetBlock(const std::byte* data, size_t)
      : block(reinterpret_cast<const Stored*>(data)), scale(broadcast_f16(data)) {}
  HWY_INLINE FloatVec vec(size_t i) const {
    const IntVec codes = hn::Or(nibbles<16>(block->qs, i), fifth_bits(block->qh, i));
    return hn::Mul(scale, to_float(hn::Sub(codes, hn::Set(IntTag(), kOffset))));
  }
};

template <class Stored>
struct AffineBlock {  // Q4_1, Q5_1: scale * code + minimum
  const Stored* block;
  FloatVec scale, minimum;
  HWY_INLINE AffineBlock(const std::byte* data, size_t)
      : block(reinterpret_cast<const Stored*>(data)), scale(broadcast_f16(data)), minimum(broadcast_f16(data + 2)) {}
  HWY_INLINE FloatVec vec(size_t i) const {
    IntVec codes = nibbles<16>(block->qs, i);
    if constexpr (requires { block->qh; }) codes = hn::Or(codes, fifth_bits(block->qh, i));
    return hn::MulAdd(scale, to_float(codes), minimum);
  }
};

// Sixteen levels by code, widened once.
struct Levels {
  float values[16];
  constexpr explicit Levels(const int8_t (&levels)[16]) : values() {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(levels[i]);
  }
  HWY_INLINE FloatVec at(IntVec codes) const {
#if HWY_TARGET <= HWY_AVX3
    return FloatVec{_mm512_permutexvar_ps(codes.raw, hn::LoadU(FloatTag(), values).raw)};
#else
    return hn::GatherIndex(FloatTag(), values, codes);
#endif
  }
};
inline constexpr Levels kIq4(kIq4Levels), kMxfp4(kMxfp4Levels);

struct Iq4NlBlock {
  const uint8_t* codes;
  FloatVec scale;
  HWY_INLINE Iq4NlBlock(const std::byte* data, size_t)
      : codes(reinterpret_cast<const BlockIQ4_NL*>(data)->qs), scale(broadcast_f16(data)) {}
  HWY_INLINE FloatVec vec(size_t i) const { return hn::Mul(scale, kIq4.at(nibbles<16>(codes, i))); }
};

struct Iq4XsBlock {
  const uint8_t* codes;
  FloatVec scale;
  HWY_INLINE Iq4XsBlock(const std::byte* data, size_t sub) {
    const auto* block = reinterpret_cast<const BlockIQ4_XS*>(data);
    codes = block->qs + 16 * sub;
    uint16_t upper;
    std::memcpy(&upper, &block->scales_h, sizeof(upper));
    const int low = block->scales_l[sub / 2] >> (4 * (sub % 2)) & 15, high = upper >> (2 * sub) & 3;
    scale = hn::Mul(broadcast_f16(data), broadcast(static_cast<float>((low | high << 4) - 32)));
  }
  HWY_INLINE FloatVec vec(size_t i) const { return hn::Mul(scale, kIq4.at(nibbles<16>(codes, i))); }
};

struct Mxfp4Block {
  const BlockMXFP4* block;
  FloatVec scale;
  HWY_INLINE Mxfp4Block(const std::byte* data, size_t)
      : block(reinterpret_cast<const BlockMXFP4*>(data)), scale(broadcast(e8m0_to_half_float(block->e))) {}
  HWY_INLINE FloatVec vec(size_t i) const { return hn::Mul(scale, kMxfp4.at(nibbles<16>(block->qs, i))); }
};

// Q4_K and Q5_K in runs of 64 codes, two groups with a 6-bit scale and minimum each.
template <class Stored>
struct SixBitBlock {
  const Stored* block;
  size_t pair;
  FloatVec scales[2], minima[2];

  HWY_INLINE SixBitBlock(const std::byte* data, size_t sub) : block(reinterpret_cast<const Stored*>(data)), pair(sub) {
    const FloatVec d = broadcast_f16(data), dmin = broadcast_f16(data + 2);
    const uint8_t* packed = block->scales;
    for (size_t k = 0; k < 2; ++k) {
      const size_t b = 2 * pair + k;
      const int scale = b < 4 ? packed[b] & 63 : (packed[b + 4] & 15) | packed[b - 4] >> 6 << 4;
      const int minimum = b < 4 ? packed[b + 4] & 63 : packed[b + 4] >> 4 | packed[b] >> 6 << 4;
      scales[k] = hn::Mul(d, broadcast(static_cast<float>(scale)));
      minima[k] = hn::Mul(dmin, broadcast(static_cast<float>(minimum)));
    }
  }
  HWY_INLINE FloatVec vec(size_t i) const {
    const size_t k = i * kLanes / 32;
    IntVec codes = nibbles<32>(block->qs + 32 * pair, i);
    if constexpr (requires { block->qh; }) {  // bit 2 * pair + k of byte j
      const IntVec planes = load_bytes(block->qh + i * kLanes % 32);
      const IntVec bit = low_bits(hn::ShiftRightSame(planes, static_cast<int>(2 * pair + k)), 1);
      codes = hn::Or(codes, hn::ShiftLeft<4>(bit));
    }
    return hn::MulSub(scales[k], to_float(codes), minima[k]);
  }
};

// Q6_K in runs of 128 codes with eight scales: byte j holds codes j and j + 64, the upper two bits lie in fours.
struct Q6KBlock {
  const uint8_t *lower, *upper;
  const int8_t* scales;
  FloatVec d;

  HWY_INLINE Q6KBlock(const std::byte* data, size_t half) {
    const auto* block = reinterpret_cast<const BlockQ6_K*>(data);
    lower = block->ql + 64 * half;
    upper = block->qh + 32 * half;
    scales = block->scales + 8 * half;
    d = broadcast_f16(data + offsetof(BlockQ6_K, d));
  }
  HWY_INLINE FloatVec vec(size_t i) const {
    const size_t part = i * kLanes / 32;
    const IntVec pairs =
        low_bits(hn::ShiftRightSame(load_bytes(upper + i * kLanes % 32), static_cast<int>(2 * part)), 3);
    const IntVec codes = hn::Or(nibbles<64>(lower, i), hn::ShiftLeft<4>(pairs));
    const FloatVec scale = hn::Mul(d, broadcast(static_cast<float>(scales[i * kLanes / 16])));
    return hn::Mul(scale, to_float(hn::Sub(codes, hn::Set(IntTag(), 32))));
  }
};

// Steps of kStep values inside stored blocks of kSteps steps.
template <class Block, size_t kBlockBytes, size_t kStep, size_t kSteps>
class SteppedRow {
 public:
  static constexpr size_t kVecs = kStep / kLanes;

  explicit SteppedRow(const std::byte* data) : data_(data) {}
  HWY_INLINE const std::byte* at(size_t step) const { return data_ + step / kSteps * kBlockBytes; }
  HWY_INLINE Block block(size_t step) const { return Block(at(step), step % kSteps); }
  HWY_INLINE FloatVec tail(size_t, size_t) const { return hn::Zero(FloatTag()); }

 private:
  const std::byte* data_;
};

using Q4_1Row = SteppedRow<AffineBlock<BlockQ4_1>, sizeof(BlockQ4_1), 32, 1>;
using Q5_0Row = SteppedRow<OffsetBlock<BlockQ5_0, 16>, sizeof(BlockQ5_0), 32, 1>;
using Q5_1Row = SteppedRow<AffineBlock<BlockQ5_1>, sizeof(BlockQ5_1), 32, 1>;
using IQ4_NLRow = SteppedRow<Iq4NlBlock, sizeof(BlockIQ4_NL), 32, 1>;
using IQ4_XSRow = SteppedRow<Iq4XsBlock, sizeof(BlockIQ4_XS), 32, 8>;
using MXFP4Row = SteppedRow<Mxfp4Block, sizeof(BlockMXFP4), 32, 1>;
using Q4_KRow = SteppedRow<SixBitBlock<BlockQ4_K>, sizeof(BlockQ4_K), 64, 4>;
using Q5_KRow = SteppedRow<SixBitBlock<BlockQ5_K>, sizeof(BlockQ5_K), 64, 4>;
using Q6_KRow = SteppedRow<Q6KBlock, sizeof(BlockQ6_K), 128, 2>;

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
