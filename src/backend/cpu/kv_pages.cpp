// Pages in the CPU's layout; see page_layout.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/cpu/page_layout.h"
#include "backend/cpu/partials.h"
#include "backend/cpu/to_f16.h"
#include "tensor/half.h"

namespace godwit::cpu {
namespace {

constexpr int64_t kNumbersPerItem = 4096;  // what pays for waking a thread

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
void store(const float* from, float* to, size_t count) {
  std::copy_n(from, count, to);
}
void store(const float* from, F16* to, size_t count) {
  to_f16(from, &to->bits, count);
}
void store(const float* from, BF16* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i].bits = float_to_bf16(from[i]);
}

struct Sizes {
  explicit Sizes(const KvFormat& format)
      : head_dim(static_cast<size_t>(format.head_dim)),
        page_tokens(static_cast<size_t>(format.page_tokens)),
        element_bytes(dtype_bytes(format.dtype, 1)),
        k_bytes(format.k_bytes()),
        page_bytes(format.page_bytes()) {
    check_kv_format(format);
  }

  size_t head_dim, page_tokens, element_bytes, k_bytes, page_bytes;
};

template <class T>
void write_slot(const Sizes& sizes, std::byte* page, size_t slot, const float* k, const float* v) {
  T* keys = reinterpret_cast<T*>(page) + slot;
  T* values = reinterpret_cast<T*>(page + sizes.k_bytes) + slot * sizes.head_dim;
  T stored[64];
  for (size_t begin = 0; begin < sizes.head_dim; begin += std::size(stored)) {
    const size_t count = std::min(sizes.head_dim - begin, std::size(stored));
    store(k + begin, stored, count);
    for (size_t i = 0; i < count; ++i) keys[(begin + i) * sizes.page_tokens] = stored[i];
  }
  store(v, values, sizes.head_dim);
}

// Calls write(page, slot, k, v) for every (row, head) of rows [begin, end).
template <class Write>
void write_rows(const KvWriteArgs& args, const Sizes& sizes, int64_t begin, int64_t end, const Write& write) {
  std::byte* slab = args.format.seals ? args.open_slab : args.slab;
  const auto heads = static_cast<size_t>(args.k.shape[1]);
  for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
    const auto* k = reinterpret_cast<const float*>(args.k.data + row * args.k.row_stride_bytes);
    const auto* v = reinterpret_cast<const float*>(args.v.data + row * args.v.row_stride_bytes);
    for (size_t head = 0; head < heads; ++head) {
      const KvSlot slot = args.slots[row * heads + head];
      GODWIT_CHECK(slot.slot < sizes.page_tokens && is_open(slot.page) == args.format.seals);
      write(slab + page_index(slot.page) * sizes.page_bytes, slot.slot, k + head * sizes.head_dim,
            v + head * sizes.head_dim);
    }
  }
}

template <class T>
void write_numbers(const KvWriteArgs& args, const Sizes& sizes, int64_t begin, int64_t end) {
  write_rows(args, sizes, begin, end, [&](std::byte* page, size_t slot, const float* k, const float* v) {
    write_slot<T>(sizes, page, slot, k, v);
  });
}

void write_codes(const KvWriteArgs& args, const Sizes& sizes, int64_t begin, int64_t end) {
  const PageHalf keys = PageHalf::keys(args.format), values = PageHalf::values(args.format);
  std::vector<uint8_t> codes(sizes.head_dim);
  auto store_half = [&](const PageHalf& half, std::byte* page, size_t slot, const float* numbers) {
    half.set_scale(page, slot, kv_encode(half.bits(), numbers, sizes.head_dim, codes.data()));
    for (size_t i = 0; i < sizes.head_dim; ++i) half.set_code(page, slot, i, codes[i]);
  };
  write_rows(args, sizes, begin, end, [&](std::byte* page, size_t slot, const float* k, const float* v) {
    store_half(keys, page, slot, k);
    store_half(values, page, slot, v);
  });
}

void move_codes(const PageHalf& half, const std::byte* from, size_t from_slot, std::byte* to, size_t to_slot,
                size_t head_dim) {
  for (size_t i = 0; i < head_dim; ++i) half.set_code(to, to_slot, i, half.code(from, from_slot, i));
  half.set_scale(to, to_slot, half.scale(from, from_slot));
}

// Canonical codes are [page_tokens, head_dim], several to a byte from the lowest bits on; then scales and middles as
// they are.
void export_codes(const PageHalf& half, const Sizes& sizes, const std::byte* page, std::byte* canonical) {
  for (size_t slot = 0; slot < sizes.page_tokens; ++slot)
    for (size_t i = 0; i < sizes.head_dim;) {
      unsigned byte = 0;
      for (int shift = 0; shift < 8; shift += half.bits())
        byte |= static_cast<unsigned>(half.code(page, slot, i++)) << shift;
      *canonical++ = static_cast<std::byte>(byte);
    }
  std::memcpy(canonical, page + half.offset() + half.code_bytes(), 2 * half.scales() * sizeof(uint16_t));
}

void import_codes(const PageHalf& half, const Sizes& sizes, const std::byte* canonical, std::byte* page) {
  for (size_t slot = 0; slot < sizes.page_tokens; ++slot)
    for (size_t i = 0; i < sizes.head_dim;) {
      const auto byte = static_cast<unsigned>(*canonical++);
      for (int shift = 0; shift < 8; shift += half.bits())
        half.set_code(page, slot, i++, static_cast<uint8_t>(byte >> shift & ((1u << half.bits()) - 1)));
    }
  std::memcpy(page + half.offset() + half.code_bytes(), canonical, 2 * half.scales() * sizeof(uint16_t));
}

// The numbers of each token that have the largest magnitudes; of equals the first ones. NaNs are larger than all
// others.
void seal_sparse(const PageHalf& open, const PageHalf& half, const Sizes& sizes, const std::byte* from,
                 std::byte* page) {
  std::byte* bitmap = page + half.offset();
  auto* numbers = reinterpret_cast<uint16_t*>(bitmap + half.bitmap_bytes());
  std::memset(bitmap, 0, half.bitmap_bytes());
  const auto* stored = reinterpret_cast<const uint16_t*>(from + open.offset());
  std::vector<size_t> order(sizes.head_dim);
  for (size_t token = 0; token < sizes.page_tokens; ++token) {
    std::iota(order.begin(), order.end(), size_t{0});
    // Magnitudes of f16 are ordered as their bits are.
    const auto magnitude = [&](size_t dim) { return stored[half.index(token, dim)] & 0x7fff; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return magnitude(a) > magnitude(b); });
    for (size_t i = 0; i < half.kept(); ++i) {
      const size_t at = half.index(token, order[i]);
      bitmap[at / 8] |= static_cast<std::byte>(1u << at % 8);
    }
  }
  for (size_t at = 0; at < sizes.head_dim * sizes.page_tokens; ++at)
    if ((static_cast<unsigned>(bitmap[at / 8]) >> at % 8 & 1) != 0) *numbers++ = stored[at];
}

// Canonical sparse pages have bitmap[page_tokens, head_dim / 8], then numbers[page_tokens, kept].
void export_sparse(const PageHalf& half, const Sizes& sizes, const std::byte* page, std::byte* canonical) {
  const auto* from = reinterpret_cast<const uint16_t*>(page + half.offset() + half.bitmap_bytes());
  auto* numbers = reinterpret_cast<uint16_t*>(canonical + half.bitmap_bytes());
  std::memset(canonical, 0, half.bitmap_bytes());
  for (size_t token = 0; token < sizes.page_tokens; ++token)
    for (size_t dim = 0; dim < sizes.head_dim; ++dim) {
      if (!half.is_kept(page, token, dim)) continue;
      const size_t at = token * sizes.head_dim + dim;
      canonical[at / 8] |= static_cast<std::byte>(1u << at % 8);
      *numbers++ = from[half.rank(page, half.index(token, dim))];
    }
}

void import_sparse(const PageHalf& half, const Sizes& sizes, const std::byte* canonical, std::byte* page) {
  const auto* from = reinterpret_cast<const uint16_t*>(canonical + half.bitmap_bytes());
  auto* numbers = reinterpret_cast<uint16_t*>(page + half.offset() + half.bitmap_bytes());
  std::memset(page + half.offset(), 0, half.bitmap_bytes());
  const auto visit = [&](const auto& each) {  // numbers in canonical order
    for (size_t token = 0; token < sizes.page_tokens; ++token)
      for (size_t dim = 0; dim < sizes.head_dim; ++dim) {
        const size_t at = token * sizes.head_dim + dim;
        if ((static_cast<unsigned>(canonical[at / 8]) >> at % 8 & 1) != 0) each(half.index(token, dim));
      }
  };
  visit([&](size_t at) { page[half.offset() + at / 8] |= static_cast<std::byte>(1u << at % 8); });
  visit([&](size_t at) { numbers[half.rank(page, at)] = *from++; });
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

void check_kv_format(const KvFormat& format) {
  GODWIT_CHECK(format.dtype == DType::kF32 || format.dtype == DType::kF16 || format.dtype == DType::kBF16);
  GODWIT_CHECK(format.head_dim > 0 && format.page_tokens > 0);
  if (format.sealed_form) {
    GODWIT_CHECK(format.dtype == DType::kF16 && format.seals && !format.is_sparse() && !format.has_codes());
    GODWIT_CHECK(format.sealed_form->head_dim() == static_cast<size_t>(format.head_dim) &&
                 format.sealed_form->page_tokens() == static_cast<size_t>(format.page_tokens));
    return;
  }
  if (format.is_sparse() || format.v_keep != 0) {
    GODWIT_CHECK(format.dtype == DType::kF16 && format.seals && format.k_bits == 0 && format.v_bits == 0);
    GODWIT_CHECK(format.page_tokens % 16 == 0 && format.head_dim % 16 == 0 && format.head_dim <= 512);
    for (int keep : {format.k_keep, format.v_keep}) GODWIT_CHECK(keep > 0 && keep <= format.head_dim);
    return;
  }
  if (format.k_bits == 0 && format.v_bits == 0) return;
  GODWIT_CHECK(format.dtype == DType::kF16 && format.page_tokens % 16 == 0);
  for (int bits : {format.k_bits, format.v_bits})
    GODWIT_CHECK(((bits == 8 && format.head_dim % 8 == 0) || (bits == 4 && format.head_dim % 32 == 0) ||
                  (bits == 2 && format.head_dim % 64 == 0)),
                 "{} bits, head_dim {}", bits, format.head_dim);
  GODWIT_CHECK(!format.k_by_dim || (format.seals && format.k_bits < 8 && format.head_dim <= 512));
  GODWIT_CHECK(format.open_first % format.page_tokens == 0 && format.open_last % format.page_tokens == 0);
}

void kv_write(Context& context, const KvWriteArgs& args) {
  const KvFormat format = args.format.seals ? args.format.open_format() : args.format;
  const Sizes sizes(format);
  GODWIT_CHECK(args.k.rank == 3 && args.k.dtype == DType::kF32 && args.v.dtype == DType::kF32);
  GODWIT_CHECK(args.k.shape == args.v.shape && args.k.shape[2] == args.format.head_dim);
  const int64_t rows = args.k.shape[0];
  GODWIT_CHECK(args.slots.size() == static_cast<size_t>(rows * args.k.shape[1]));
  const int64_t rows_per_item = std::max<int64_t>(1, kNumbersPerItem / (args.k.shape[1] * args.k.shape[2]));
  context.pool.parallel_for((rows + rows_per_item - 1) / rows_per_item, [&](int64_t item) {
    const int64_t begin = item * rows_per_item, end = std::min(rows, begin + rows_per_item);
    if (format.has_codes()) return write_codes(args, sizes, begin, end);
    switch (format.dtype) {
      case DType::kF16:
        return write_numbers<F16>(args, sizes, begin, end);
      case DType::kBF16:
        return write_numbers<BF16>(args, sizes, begin, end);
      default:
        return write_numbers<float>(args, sizes, begin, end);
    }
  });
}

void kv_seal(Context& context, const KvSealArgs& args) {
  const Sizes sizes(args.format);
  const KvFormat open_format = args.format.open_format();
  const PageHalf open_halves[] = {PageHalf::keys(open_format), PageHalf::values(open_format)};
  const PageHalf halves[] = {PageHalf::keys(args.format), PageHalf::values(args.format)};
  context.pool.parallel_for(static_cast<int64_t>(args.pages.size()), [&](int64_t item) {
    const KvSeal& seal = args.pages[static_cast<size_t>(item)];
    const std::byte* open = args.open_slab + page_index(seal.open) * open_format.page_bytes();
    std::byte* sealed = args.slab + page_index(seal.sealed) * sizes.page_bytes;
    if (args.format.sealed_form) {
      std::vector<float> k(sizes.head_dim * sizes.page_tokens), v(k.size());
      const auto* stored = reinterpret_cast<const uint16_t*>(open);
      for (size_t i = 0; i < k.size(); ++i) k[i] = f16_to_float(stored[i]), v[i] = f16_to_float(stored[k.size() + i]);
      std::vector<int32_t> positions(sizes.page_tokens);
      std::iota(positions.begin(), positions.end(), seal.first_position);
      if (seal.aux != kNoAux)
        std::memcpy(positions.data(), args.aux + seal.aux * args.format.aux_bytes(),
                    sizes.page_tokens * sizeof(int32_t));
      return args.format.sealed_form->seal({seal.table, positions.data()}, k.data(), v.data(), sealed);
    }
    if (args.format.is_sparse()) {
      for (size_t i = 0; i < 2; ++i) seal_sparse(open_halves[i], halves[i], sizes, open, sealed);
      return;
    }
    std::vector<float> numbers(std::max(sizes.head_dim, sizes.page_tokens));
    std::vector<uint8_t> codes(numbers.size());
    // A NaN must not reach the tokens that share a dimension's scale with its own: it becomes 0 there, and the token's
    // V becomes NaN instead.
    std::vector<bool> poisoned(sizes.page_tokens);
    for (size_t i = 0; i < 2; ++i) {
      const PageHalf &from = open_halves[i], &to = halves[i];
      const size_t count = to.by_dim() ? sizes.page_tokens : sizes.head_dim;
      for (size_t of = 0; of < to.scales(); ++of) {
        for (size_t j = 0; j < count; ++j) {
          numbers[j] = to.by_dim() ? from.number(open, j, of) : from.number(open, of, j);
          if (!to.by_dim() || numbers[j] == numbers[j]) continue;
          poisoned[j] = true;
          numbers[j] = 0;
        }
        if (!to.by_dim() && poisoned[of]) numbers[0] = std::numeric_limits<float>::quiet_NaN();
        to.set_scale(sealed, of, kv_encode(to.bits(), numbers.data(), count, codes.data()));
        for (size_t j = 0; j < count; ++j)
          to.by_dim() ? to.set_code(sealed, j, of, codes[j]) : to.set_code(sealed, of, j, codes[j]);
      }
    }
  });
}

void kv_move(const KvFormat& format, std::byte* to_slab, const std::byte* from_slab, std::span<const KvMove> moves) {
  const Sizes sizes(format);
  const size_t bytes = sizes.element_bytes;
  for (const KvMove& move : moves) {
    GODWIT_CHECK(move.from.slot < sizes.page_tokens && move.to.slot < sizes.page_tokens);
    const std::byte* from = from_slab + page_index(move.from.page) * sizes.page_bytes;
    std::byte* to = to_slab + page_index(move.to.page) * sizes.page_bytes;
    if (format.has_codes()) {
      for (const PageHalf& half : {PageHalf::keys(format), PageHalf::values(format)})
        move_codes(half, from, move.from.slot, to, move.to.slot, sizes.head_dim);
      continue;
    }
    for (size_t i = 0; i < sizes.head_dim; ++i)
      std::memmove(to + (i * sizes.page_tokens + move.to.slot) * bytes,
                   from + (i * sizes.page_tokens + move.from.slot) * bytes, bytes);
    const size_t line = sizes.head_dim * bytes;
    std::memmove(to + sizes.k_bytes + move.to.slot * line, from + sizes.k_bytes + move.from.slot * line, line);
  }
}

void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) {
  const Sizes sizes(format);
  GODWIT_CHECK(canonical.size() == sizes.page_bytes);
  const std::byte* from = slab + page * sizes.page_bytes;
  if (format.sealed_form) {
    std::memcpy(canonical.data(), from, sizes.page_bytes);
    return;
  }
  if (format.is_sparse()) {
    export_sparse(PageHalf::keys(format), sizes, from, canonical.data());
    return export_sparse(PageHalf::values(format), sizes, from, canonical.data() + sizes.k_bytes);
  }
  if (format.has_codes()) {
    export_codes(PageHalf::keys(format), sizes, from, canonical.data());
    return export_codes(PageHalf::values(format), sizes, from, canonical.data() + sizes.k_bytes);
  }
  transpose(sizes.element_bytes, from, canonical.data(), sizes.head_dim, sizes.page_tokens);
  std::memcpy(canonical.data() + sizes.k_bytes, from + sizes.k_bytes, sizes.k_bytes);
}

void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical) {
  const Sizes sizes(format);
  GODWIT_CHECK(canonical.size() == sizes.page_bytes);
  std::byte* to = slab + page * sizes.page_bytes;
  if (format.sealed_form) {
    std::memcpy(to, canonical.data(), sizes.page_bytes);
    return;
  }
  if (format.is_sparse()) {
    import_sparse(PageHalf::keys(format), sizes, canonical.data(), to);
    return import_sparse(PageHalf::values(format), sizes, canonical.data() + sizes.k_bytes, to);
  }
  if (format.has_codes()) {
    import_codes(PageHalf::keys(format), sizes, canonical.data(), to);
    return import_codes(PageHalf::values(format), sizes, canonical.data() + sizes.k_bytes, to);
  }
  transpose(sizes.element_bytes, canonical.data(), to, sizes.page_tokens, sizes.head_dim);
  std::memcpy(to + sizes.k_bytes, canonical.data() + sizes.k_bytes, sizes.k_bytes);
}

}  // namespace godwit::cpu
