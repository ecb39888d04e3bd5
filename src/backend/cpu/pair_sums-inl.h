// The sum of a group's products in 8 bits without vpdpbusd. Included by lines_256-inl.h and lines_512-inl.h, whose
// names it uses.
#pragma once

GODWIT_LINES_BEGIN
namespace godwit::cpu {
namespace {

// vpmaddubsw adds two products in 16 bits, which hold those of codes up to 127; the eight pairs of a group of codes up
// to 15 are added there, too. Codes of 8 bits, less the constant, are taken apart into magnitudes and signs, which x
// gets; so there is no bias.
template <class Type>
class WholeSums {
 public:
  static constexpr bool kSigned = Type::kLargestCode > 127;
  static constexpr bool kNarrow = Type::kLargestCode * 127 * 2 * 8 < 32768;
  struct Codes {
    Line magnitudes;
    Signs signs;  // where kSigned
  };

  static HWY_INLINE Codes prepare(Line codes) {
    if constexpr (!kSigned) return {codes, Signs()};
    const Line v = less_bytes(codes, Type::kX.constant);
    return {magnitudes_of(v), signs_of(v)};
  }

  HWY_INLINE void start(int32_t) { sums_ = all_lanes(0); }
  HWY_INLINE void add_four(const Codes& codes, const int8_t* x) {
    const Values values = four_everywhere(x);
    Line pairs;
    if constexpr (kSigned)
      pairs = pair_products(codes.magnitudes, codes.signs, values);
    else
      pairs = pair_products(codes.magnitudes, values);
    sums_ = kNarrow ? add_16(sums_, pairs) : add_32(sums_, widened(pairs));
    keep_in_registers(sums_);  // GCC would keep all products, in memory, to add them as a tree
  }
  HWY_INLINE Line total(int32_t bias) const {
    const Line sums = kNarrow ? widened(sums_) : sums_;
    if constexpr (kSigned || Type::kX.constant == 0) return sums;
    return add_32(sums, all_lanes(bias));
  }

 private:
  Line sums_;
};

}  // namespace
}  // namespace godwit::cpu
GODWIT_LINES_END
