// Sparse pages (page_layout.h) as fp32, eight numbers at a time.
#if defined(GODWIT_CPU_PAGE_SPARSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GODWIT_CPU_PAGE_SPARSE_INL_H_
#undef GODWIT_CPU_PAGE_SPARSE_INL_H_
#else
#define GODWIT_CPU_PAGE_SPARSE_INL_H_
#endif

#include "backend/cpu/attention_math-inl.h"
#include "backend/cpu/page_layout.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kMaxScales = 512;  // of a page, and columns of a sparse one: page_tokens or head_dim

// For each mask of eight numbers: which bytes of those that are there go where; 0x80 where none do.
struct SpreadTable {
  constexpr SpreadTable() {
    for (size_t mask = 0; mask < 256; ++mask) {
      uint8_t next = 0;
      for (size_t i = 0; i < 8; ++i) {
        const bool set = (mask >> i & 1) != 0;
        bytes[mask][2 * i] = set ? next++ : 0x80;
        bytes[mask][2 * i + 1] = set ? next++ : 0x80;
      }
    }
  }
  alignas(16) uint8_t bytes[256][16] = {};
};
inline constexpr SpreadTable kSpread;

// A row as f16; says how many of the numbers it took. Eight are loaded, however many are there.
HWY_INLINE size_t spread_row(const uint8_t* bitmap, const F16* numbers, size_t columns, F16* line) {
  const F16* next = numbers;
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < columns; ++i) line[i] = (bitmap[i / 8] >> i % 8 & 1) != 0 ? *next++ : F16{};
#else
  const hn::FixedTag<uint8_t, 16> bytes;
  for (size_t i = 0; i < columns / 8; ++i) {
    const auto some = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(next));
    const auto spread = hn::TableLookupBytesOr0(some, hn::Load(bytes, kSpread.bytes[bitmap[i]]));
    hn::StoreU(spread, bytes, reinterpret_cast<uint8_t*>(line + 8 * i));
    next += hwy::PopCount(uint64_t{bitmap[i]});
  }
#endif
  return static_cast<size_t>(next - numbers);
}

// The first `rows` rows of a half, each as `width` numbers; those past its columns become 0.
inline void widen_sparse(const PageHalf& half, const std::byte* page, size_t rows, size_t width, float* to) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d), columns = half.columns();
  const auto* bitmap = reinterpret_cast<const uint8_t*>(page + half.offset());
  const auto* numbers = reinterpret_cast<const F16*>(page + half.offset() + half.bitmap_bytes());
  const F16* end = numbers + half.kept() * half.tokens();
  alignas(64) F16 line[kMaxScales], last[kMaxScales + 16];
  bool near_end = false;
  for (size_t row = 0; row < rows; ++row, bitmap += columns / 8, to += width) {
    if (!near_end && end - numbers < static_cast<ptrdiff_t>(columns + 8)) {  // nothing may be loaded from past the page
      std::copy(numbers, end, last);
      numbers = last;
      near_end = true;
    }
    numbers += spread_row(bitmap, numbers, columns, line);
    for (size_t i = 0; i < columns; i += lanes) hn::StoreU(load_kv(line + i), d, to + i);
    for (size_t i = columns; i < width; ++i) to[i] = 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#endif
