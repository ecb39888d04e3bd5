// Rows of codes (backend/code_rows.h) as vectors of fp32.
#if defined(GODWIT_CPU_PAGE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_PAGE_ROWS_INL_H_
#undef GODWIT_CPU_PAGE_ROWS_INL_H_
#else
#define GODWIT_CPU_PAGE_ROWS_INL_H_
#endif

#include "backend/code_rows.h"
#include "backend/cpu/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

template <int kBits, int kField = 0, class Word, class Use>
HWY_INLINE void for_codes_of_bytes(Word bytes, size_t i, size_t step, const Use& use) {
  if constexpr (kField < 8 / kBits) {
    const FloatTag d;
    const hn::RebindToUnsigned<FloatTag> du;
    const auto code = hn::And(hn::ShiftRight<kField * kBits>(bytes), hn::Set(du, (1u << kBits) - 1));
    use(i, hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<FloatTag>(), code)));
    for_codes_of_bytes<kBits, kField + 1>(bytes, i + step, step, use);
  }
}

template <int kBits, class Use>
HWY_INLINE void for_codes(const std::byte* row, size_t count, const Use& use) {
  const FloatTag d;
  const size_t bytes = code_row_bytes(kBits, count);
  for (size_t i = 0; i < bytes; i += hn::Lanes(d)) {
    const auto some = hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), reinterpret_cast<const uint8_t*>(row + i));
    for_codes_of_bytes<kBits>(hn::PromoteTo(hn::RebindToUnsigned<FloatTag>(), some), i, bytes, use);
  }
}

// Calls use(i, codes) for the codes i, i + 1 ... of a row of `count`, a vector of them at a time. A vector's codes fill
// bytes of their own: count * bits / 8 is a multiple of 16.
template <class Use>
HWY_INLINE void for_codes(int bits, const std::byte* row, size_t count, const Use& use) {
  if (bits == 8) return for_codes<8>(row, count, use);
  if (bits == 4) return for_codes<4>(row, count, use);
  for_codes<2>(row, count, use);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
