// Pages in the CPU's layout: K[head_dim, page_tokens], then V[page_tokens, head_dim].
#include <algorithm>
#include <cstring>

#include "backend/cpu/partials.h"
#include "tensor/half.h"

namespace godwit::cpu {
namespace {

constexpr int64_t kRowsPerItem = 64;

void store(float value, float* to) {
  *to = value;
}

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
void store(float value, F16* to) {
  to->bits = float_to_f16(value);
}
void store(float value, BF16* to) {
  to->bits = float_to_bf16(value);
}

struct Sizes {
  explicit Sizes(const KvFormat& format)
      : head_dim(static_cast<size_t>(format.head_dim)),
        page_tokens(static_cast<size_t>(format.page_tokens)),
        element_bytes(dtype_bytes(format.dtype, 1)),
        half_page_bytes(format.half_page_bytes()) {
    GODWIT_CHECK(format.dtype == DType::kF32 || format.dtype == DType::kF16 || format.dtype == DType::kBF16);
    GODWIT_CHECK(format.head_dim > 0 && format.page_tokens > 0);
  }
  size_t page_bytes() const { return 2 * half_page_bytes; }

  size_t head_dim, page_tokens, element_bytes, half_page_bytes;
};

template <class T>
void write_slot(const Sizes& sizes, std::byte* page, size_t slot, const float* k, const float* v) {
  T* keys = reinterpret_cast<T*>(page) + slot;
  T* values = reinterpret_cast<T*>(page + sizes.half_page_bytes) + slot * sizes.head_dim;
  for (size_t i = 0; i < sizes.head_dim; ++i) store(k[i], keys + i * sizes.page_tokens);
  for (size_t i = 0; i < sizes.head_dim; ++i) store(v[i], values + i);
}

template <class T>
void write_rows(const KvWriteArgs& args, const Sizes& sizes, int64_t begin, int64_t end) {
  const auto heads = static_cast<size_t>(args.k.shape[1]);
  for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
    const auto* k = reinterpret_cast<const float*>(args.k.data + row * args.k.row_stride_bytes);
    const auto* v = reinterpret_cast<const float*>(args.v.data + row * args.v.row_stride_bytes);
    for (size_t head = 0; head < heads; ++head) {
      const KvSlot slot = args.slots[row * heads + head];
      GODWIT_CHECK(slot.slot < sizes.page_tokens);
      write_slot<T>(sizes, args.slab + slot.page * sizes.page_bytes(), slot.slot, k + head * sizes.head_dim,
                    v + head * sizes.head_dim);
    }
  }
}

// Copies a matrix [rows, columns] of `Bits` to [columns, rows].
template <class Bits>
void transpose(const std::byte* from, std::byte* to, size_t rows, size_t columns) {
  const auto* source = reinterpret_cast<const Bits*>(from);
  auto* target = reinterpret_cast<Bits*>(to);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column) target[column * rows + row] = source[row * columns + column];
}

void transpose(size_t element_bytes, const std::byte* from, std::byte* to, size_t rows, size_t columns) {
  if (element_bytes == sizeof(uint32_t)) return transpose<uint32_t>(from, to, rows, columns);
  transpose<uint16_t>(from, to, rows, columns);
}

}  // namespace

void kv_write(Context& context, const KvWriteArgs& args) {
  const Sizes sizes(args.format);
  GODWIT_CHECK(args.k.rank == 3 && args.k.dtype == DType::kF32 && args.v.dtype == DType::kF32);
  GODWIT_CHECK(args.k.shape == args.v.shape && args.k.shape[2] == args.format.head_dim);
  const int64_t rows = args.k.shape[0];
  GODWIT_CHECK(args.slots.size() == static_cast<size_t>(rows * args.k.shape[1]));
  context.pool.parallel_for((rows + kRowsPerItem - 1) / kRowsPerItem, [&](int64_t item) {
    const int64_t begin = item * kRowsPerItem, end = std::min(rows, begin + kRowsPerItem);
    switch (args.format.dtype) {
      case DType::kF16:
        return write_rows<F16>(args, sizes, begin, end);
      case DType::kBF16:
        return write_rows<BF16>(args, sizes, begin, end);
      default:
        return write_rows<float>(args, sizes, begin, end);
    }
  });
}

void kv_move(const KvFormat& format, std::byte* slab, std::span<const KvMove> moves) {
  const Sizes sizes(format);
  const size_t bytes = sizes.element_bytes;
  for (const KvMove& move : moves) {
    GODWIT_CHECK(move.from.slot < sizes.page_tokens && move.to.slot < sizes.page_tokens);
    const std::byte* from = slab + move.from.page * sizes.page_bytes();
    std::byte* to = slab + move.to.page * sizes.page_bytes();
    for (size_t i = 0; i < sizes.head_dim; ++i)
      std::memmove(to + (i * sizes.page_tokens + move.to.slot) * bytes,
                   from + (i * sizes.page_tokens + move.from.slot) * bytes, bytes);
    const size_t line = sizes.head_dim * bytes;
    std::memmove(to + sizes.half_page_bytes + move.to.slot * line, from + sizes.half_page_bytes + move.from.slot * line,
                 line);
  }
}

void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) {
  const Sizes sizes(format);
  GODWIT_CHECK(canonical.size() == sizes.page_bytes());
  const std::byte* from = slab + page * sizes.page_bytes();
  transpose(sizes.element_bytes, from, canonical.data(), sizes.head_dim, sizes.page_tokens);
  std::memcpy(canonical.data() + sizes.half_page_bytes, from + sizes.half_page_bytes, sizes.half_page_bytes);
}

void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical) {
  const Sizes sizes(format);
  GODWIT_CHECK(canonical.size() == sizes.page_bytes());
  std::byte* to = slab + page * sizes.page_bytes();
  transpose(sizes.element_bytes, canonical.data(), to, sizes.page_tokens, sizes.head_dim);
  std::memcpy(to + sizes.half_page_bytes, canonical.data() + sizes.half_page_bytes, sizes.half_page_bytes);
}

}  // namespace godwit::cpu
