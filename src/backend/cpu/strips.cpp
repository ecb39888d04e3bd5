#include "backend/cpu/strips.h"

#include <array>

#include "tensor/quant.h"

namespace godwit::cpu {
namespace {

// Of each four bits, the one at `bit` of all eight, side by side; and back.
uint32_t gathered(uint32_t word, unsigned bit) {
  word = word >> bit & 0x11111111;
  word = (word | word >> 3) & 0x03030303;
  word = (word | word >> 6) & 0x000F000F;
  return (word | word >> 12) & 0xFF;
}
uint32_t spread(uint32_t byte, unsigned bit) {
  byte = (byte | byte << 12) & 0x000F000F;
  byte = (byte | byte << 6) & 0x03030303;
  byte = (byte | byte << 3) & 0x11111111;
  return byte << bit;
}
uint32_t turned(uint32_t word) {
  return gathered(word, 0) | gathered(word, 1) << 8 | gathered(word, 2) << 16 | gathered(word, 3) << 24;
}
uint32_t turned_back(uint32_t word) {
  return spread(word & 0xFF, 0) | spread(word >> 8 & 0xFF, 1) | spread(word >> 16 & 0xFF, 2) | spread(word >> 24, 3);
}

template <uint32_t (*kTurn)(uint32_t)>
void copy_changed(const std::byte* from, std::byte* to, size_t bytes, Change change) {
  uint32_t value = 0;
  std::memcpy(&value, from, bytes);
  if (change == Change::kRaised) value ^= 0x80808080;
  if (change == Change::kTurned) value = kTurn(value);
  std::memcpy(to, &value, bytes);
}
struct CopyToStrip {
  void operator()(const std::byte* row, std::byte* strip, size_t bytes, Change change) const {
    copy_changed<turned>(row, strip, bytes, change);
  }
};
struct CopyFromStrip {
  void operator()(std::byte* row, const std::byte* strip, size_t bytes, Change change) const {
    copy_changed<turned_back>(strip, row, bytes, change);
  }
};

struct CopyFunctions {
  template <class Type>
  static const StripCopies& of() {
    static constexpr StripCopies copies{pack<Type>, unpack<Type>};
    return copies;
  }

 private:
  template <class Type>
  static void pack(const std::byte* rows, size_t stride, size_t units, std::byte* strip) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kStripRows * Type::kUnitBytes)
      StripLayout<Type>::each(rows, stride, strip, CopyToStrip());
  }
  template <class Type>
  static void unpack(const std::byte* strip, size_t stride, size_t units, std::byte* rows) {
    for (size_t u = 0; u < units; ++u, rows += Type::kUnitBytes, strip += kStripRows * Type::kUnitBytes)
      StripLayout<Type>::each(rows, stride, strip, CopyFromStrip());
  }
};

bool is_whole(const Tensor& w) {
  return (w.rank == 2 || w.rank == 3) && w.contiguous() &&
         w.shape[static_cast<size_t>(w.rank - 1)] % static_cast<int64_t>(kUnitValues) == 0 &&
         w.shape[static_cast<size_t>(w.rank - 2)] % static_cast<int64_t>(kStripRows) == 0;
}

struct Rows {
  size_t count, units, stride;
  explicit Rows(const Tensor& w)
      : count(static_cast<size_t>(w.elements() / w.shape[static_cast<size_t>(w.rank - 1)])),
        units(static_cast<size_t>(w.shape[static_cast<size_t>(w.rank - 1)]) / kUnitValues),
        stride(dtype_bytes(w.dtype, units * kUnitValues)) {}
};

const StripCopies& copies_of(const Tensor& w) {
  return w.dtype == DType::kBF16 ? bf16_strips() : strip_copies(w.dtype);
}

using Convert = void (*)(const std::byte* from, size_t stride, size_t units, std::byte* to);
void convert(Context& context, const Tensor& from, const Tensor& to, Convert each) {
  const Rows rows(from);
  GODWIT_CHECK(from.contiguous() && to.contiguous() && from.shape == to.shape && from.dtype == to.dtype &&
               from.packed != to.packed);
  context.pool.parallel_ranges(static_cast<int64_t>(rows.count / kStripRows), [&](int64_t strip) {
    const size_t at = static_cast<size_t>(strip) * kStripRows * rows.stride;
    each(from.data + at, rows.stride, rows.units, to.data + at);
  });
}

}  // namespace

const StripCopies& strip_copies(DType dtype) {
  return of_layout<CopyFunctions>(dtype);
}

bool can_pack_strips(const Tensor& w) {
  return is_quantized(w.dtype) && is_whole(w);
}

bool can_pack_tiles(const Tensor& w) {
  return (is_quantized(w.dtype) || w.dtype == DType::kBF16) && is_whole(w);
}

void pack_strips(Context& context, const Tensor& rows, const Tensor& packed) {
  GODWIT_CHECK(can_pack_tiles(rows));
  convert(context, rows, packed, copies_of(rows).pack);
}

void unpack_strips(Context& context, const Tensor& packed, const Tensor& rows) {
  GODWIT_CHECK(can_pack_tiles(rows));
  convert(context, packed, rows, copies_of(rows).unpack);
}

void dequantize_strip_row(const Tensor& packed, int64_t row, float* out) {
  const Rows rows(packed);
  const size_t unit_bytes = rows.stride / rows.units, strip = static_cast<size_t>(row) / kStripRows;
  const StripCopies& copies = copies_of(packed);
  std::array<std::byte, kStripRows * kUnitValues * 2> unit;  // bf16; no type that is packed has more
  GODWIT_CHECK(packed.packed && kStripRows * unit_bytes <= unit.size());
  const std::byte* from = packed.data + strip * kStripRows * rows.stride;
  for (size_t u = 0; u < rows.units; ++u, from += kStripRows * unit_bytes, out += kUnitValues) {
    copies.unpack(from, unit_bytes, 1, unit.data());
    dequantize(packed.dtype, unit.data() + static_cast<size_t>(row) % kStripRows * unit_bytes, out, kUnitValues);
  }
}

}  // namespace godwit::cpu
