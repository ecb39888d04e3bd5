// K and V of single slots as fp32, out of pages in the CPU's layout: K[head_dim, page_tokens], then V[page_tokens,
// head_dim].
#include "backend/cpu/kernels.h"
#include "tensor/half.h"

namespace godwit::cpu {
namespace {

constexpr int64_t kSlotsPerItem = 64;

float widen(const std::byte* data, DType dtype, size_t index) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data)[index];
  return dtype == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

}  // namespace

void kv_read(Context& context, const KvReadArgs& args) {
  const auto dim = static_cast<size_t>(args.format.head_dim), tokens = static_cast<size_t>(args.format.page_tokens);
  const auto count = static_cast<int64_t>(args.slots.size());
  for (const Tensor* out : {&args.k, &args.v})
    GODWIT_CHECK(out->rank == 2 && out->dtype == DType::kF32 && out->shape[0] == count &&
                 out->shape[1] == args.format.head_dim);
  context.pool.parallel_for((count + kSlotsPerItem - 1) / kSlotsPerItem, [&](int64_t item) {
    const int64_t end = std::min(count, (item + 1) * kSlotsPerItem);
    for (auto i = static_cast<size_t>(item * kSlotsPerItem); i < static_cast<size_t>(end); ++i) {
      const KvSlot slot = args.slots[i];
      GODWIT_CHECK(slot.slot < tokens);
      const std::byte* page = args.slab + slot.page * args.format.page_bytes();
      auto* k = reinterpret_cast<float*>(args.k.data + i * args.k.row_stride_bytes);
      auto* v = reinterpret_cast<float*>(args.v.data + i * args.v.row_stride_bytes);
      for (size_t d = 0; d < dim; ++d) k[d] = widen(page, args.format.dtype, d * tokens + slot.slot);
      for (size_t d = 0; d < dim; ++d)
        v[d] = widen(page + args.format.half_page_bytes(), args.format.dtype, slot.slot * dim + d);
    }
  });
}

}  // namespace godwit::cpu
