// Weight rows as fp32 vectors, expanded in registers: one class per stored type, compiled once per SIMD target.
//
// A row type offers kVecs (vectors per step), block(step) whose vec(i) is the i-th vector of that step, and tail() for
// the last, partial vector of plain types, zero-padded; at(step) is where a step's bytes begin. The values equal
// godwit::dequantize()'s bit for bit: products of an fp16 scale and an integer of up to 8 bits are exact in fp32, so no
// rounding order can differ.
#if defined(GODWIT_BACKEND_CPU_DEQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_BACKEND_CPU_DEQUANT_INL_H_
#undef GODWIT_BACKEND_CPU_DEQUANT_INL_H_
#else
#define GODWIT_BACKEND_CPU_DEQUANT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr size_t kLanes = hn::MaxLanes(FloatTag());
static_assert(32 % kLanes == 0, "a block of 32 values is a whole number of vectors");

// fp16 bits in the low half of each 32-bit lane to fp32.
HWY_INLINE FloatVec f16_to_f32(hn::Vec<hn::RebindToUnsigned<FloatTag>> bits) {
  const FloatTag df;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto exponent = hn::And(bits, hn::Set(du, 0x7C00u));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7FFFu)));
  // The multiplication moves the exponent's bias and makes subnormals normal, exactly; infinities and NaNs keep theirs.
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::VecFromMask(du, hn::Eq(exponent, hn::Set(du, 0x7C00u)));
  const auto infinite = hn::And(special, hn::Set(du, 0x7F800000u));
  return hn::BitCast(df, hn::Or(hn::Or(scaled, infinite), sign));
}

HWY_INLINE FloatVec load_f16(const std::byte* from) {
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  return hn::PromoteTo(FloatTag(), hn::BitCast(dh, bits));
#else
  return f16_to_f32(hn::PromoteTo(hn::RebindToUnsigned<FloatTag>(), bits));
#endif
}

// A block's scale. Normal numbers are converted in general registers, which the vector loop leaves idle.
HWY_INLINE FloatVec broadcast_f16(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  float scale;
  if (((bits + 0x0400u) & 0x7800u) != 0) [[likely]] {
    const uint32_t shifted = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(bits))) << 13;
    scale = std::bit_cast<float>((shifted & 0x8FFFE000u) + (112u << 23));
  } else {
    scale = f16_to_float(bits);
  }
  return hn::Set(FloatTag(), scale);
}

struct F32Format {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE FloatVec load(const std::byte* from) {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(from));
  }
};

struct F16Format {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE FloatVec load(const std::byte* from) { return load_f16(from); }
};

struct BF16Format {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE FloatVec load(const std::byte* from) {
    const hn::Rebind<uint16_t, FloatTag> d16;
    const hn::RebindToUnsigned<FloatTag> du;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
};

template <class Format>
class PlainRow {
 public:
  static constexpr size_t kVecs = 1;
  static constexpr bool kPrefetch = true;
  struct Block {
    const std::byte* data;
    HWY_INLINE FloatVec vec(size_t) const { return Format::load(data); }
  };

  PlainRow() = default;
  explicit PlainRow(const std::byte* data) : data_(data) {}
  HWY_INLINE const std::byte* at(size_t step) const { return data_ + step * kLanes * Format::kBytes; }
  HWY_INLINE Block block(size_t step) const { return {at(step)}; }
  HWY_INLINE FloatVec tail(size_t step, size_t count) const {
    alignas(64) std::byte padded[kLanes * Format::kBytes] = {};
    std::memcpy(padded, at(step), count * Format::kBytes);
    return Format::load(padded);
  }

 private:
  const std::byte* data_ = nullptr;
};

using F32Row = PlainRow<F32Format>;
using F16Row = PlainRow<F16Format>;
using BF16Row = PlainRow<BF16Format>;

// Rows of blocks are whole steps.
template <class Block, size_t kBlockBytes>
class BlockRow {
 public:
  static constexpr size_t kVecs = 32 / kLanes;
  static constexpr bool kPrefetch = true;

  BlockRow() = default;
  explicit BlockRow(const std::byte* data) : data_(data) {}
  HWY_INLINE const std::byte* at(size_t step) const { return data_ + step * kBlockBytes; }
  HWY_INLINE Block block(size_t step) const { return Block(at(step)); }
  HWY_INLINE FloatVec tail(size_t, size_t) const { return hn::Zero(FloatTag()); }

 private:
  const std::byte* data_ = nullptr;
};

struct Q8_0Block {  // f16 scale, int8[32]
  FloatVec scale;
  const int8_t* values;

  HWY_INLINE explicit Q8_0Block(const std::byte* data)
      : scale(broadcast_f16(data)), values(reinterpret_cast<const int8_t*>(data + 2)) {}
  HWY_INLINE FloatVec vec(size_t i) const {
    const hn::Rebind<int8_t, FloatTag> d8;
    const hn::RebindToSigned<FloatTag> di;
    const auto integers = hn::PromoteTo(di, hn::LoadU(d8, values + i * kLanes));
    return hn::Mul(scale, hn::ConvertTo(FloatTag(), integers));
  }
};

struct Q4_0Block {  // f16 scale, 16 bytes: value j in the low half of byte j, value j + 16 in the high half; bias 8
  FloatVec scale;   // with AVX-512 the 16 values a code can stand for
  const uint8_t* values;

#if HWY_TARGET <= HWY_AVX3
  HWY_INLINE explicit Q4_0Block(const std::byte* data) : values(reinterpret_cast<const uint8_t*>(data + 2)) {
    const FloatTag df;
    scale = hn::Mul(broadcast_f16(data), hn::Sub(hn::Iota(df, 0), hn::Set(df, 8.0f)));
  }
  HWY_INLINE FloatVec vec(size_t i) const {
    const hn::Rebind<uint8_t, FloatTag> d8;
    const hn::RebindToSigned<FloatTag> di;
    const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, values));
    const auto codes = i == 0 ? bytes : hn::ShiftRight<4>(bytes);
    return FloatVec{_mm512_permutexvar_ps(codes.raw, scale.raw)};  // looks at the low four bits of a code only
  }
#else
  HWY_INLINE explicit Q4_0Block(const std::byte* data)
      : scale(broadcast_f16(data)), values(reinterpret_cast<const uint8_t*>(data + 2)) {}
  HWY_INLINE FloatVec vec(size_t i) const {
    constexpr size_t kHalf = 16 / kLanes;
    const hn::Rebind<uint8_t, FloatTag> d8;
    const hn::RebindToSigned<FloatTag> di;
    const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, values + i % kHalf * kLanes));
    const auto codes = i < kHalf ? hn::And(bytes, hn::Set(di, 15)) : hn::ShiftRight<4>(bytes);
    return hn::Mul(scale, hn::ConvertTo(FloatTag(), hn::Sub(codes, hn::Set(di, 8))));
  }
#endif
};

using Q8_0Row = BlockRow<Q8_0Block, 34>;
using Q4_0Row = BlockRow<Q4_0Block, 18>;

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
