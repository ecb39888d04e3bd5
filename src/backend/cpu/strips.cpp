#include "backend/cpu/strips.h"

#include "backend/cpu/int8_dot.h"

namespace godwit::cpu {
namespace {

bool has_strips(const Tensor& w) {
  return is_quantized(w.dtype) && int8_type(w.dtype).strips != nullptr;
}
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

bool can_pack_strips(const Tensor& w) {
  return has_strips(w) && is_whole(w);
}

bool can_pack_tiles(const Tensor& w) {
  return (has_strips(w) || w.dtype == DType::kBF16) && is_whole(w);
}

void pack_strips(Context& context, const Tensor& rows, const Tensor& packed) {
  GODWIT_CHECK(can_pack_tiles(rows));
  convert(context, rows, packed, rows.dtype == DType::kBF16 ? bf16_strips().pack : int8_type(rows.dtype).strips->pack);
}

void unpack_strips(Context& context, const Tensor& packed, const Tensor& rows) {
  GODWIT_CHECK(can_pack_tiles(rows));
  convert(context, packed, rows,
          rows.dtype == DType::kBF16 ? bf16_strips().unpack : int8_type(rows.dtype).strips->unpack);
}

}  // namespace godwit::cpu
