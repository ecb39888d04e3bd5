// K and V of single slots as fp32, out of pages in the CPU's layout.
#include "backend/cpu/kernels.h"
#include "backend/cpu/page_layout.h"

namespace godwit::cpu {
namespace {

constexpr int64_t kSlotsPerItem = 64;

}  // namespace

void kv_read(Context& context, const KvReadArgs& args) {
  const auto dim = static_cast<size_t>(args.format.head_dim), tokens = static_cast<size_t>(args.format.page_tokens);
  const KvFormat forms[] = {args.format, args.format.open_format()};
  const std::byte* slabs[] = {args.slab, args.open_slab};
  const PageHalf keys[] = {PageHalf::keys(forms[0]), PageHalf::keys(forms[1])};
  const PageHalf values[] = {PageHalf::values(forms[0]), PageHalf::values(forms[1])};
  const auto count = static_cast<int64_t>(args.slots.size());
  for (const Tensor* out : {&args.k, &args.v})
    GODWIT_CHECK(out->rank == 2 && out->dtype == DType::kF32 && out->shape[0] == count &&
                 out->shape[1] == args.format.head_dim);
  context.pool.parallel_for((count + kSlotsPerItem - 1) / kSlotsPerItem, [&](int64_t item) {
    const int64_t end = std::min(count, (item + 1) * kSlotsPerItem);
    // Of a page with a form of its own all numbers are read at once: slots of one page mostly stand side by side.
    const std::byte* last = nullptr;
    std::vector<float> page_k, page_v;
    for (auto i = static_cast<size_t>(item * kSlotsPerItem); i < static_cast<size_t>(end); ++i) {
      const KvSlot slot = args.slots[i];
      const size_t form = is_open(slot.page) ? 1 : 0;
      GODWIT_CHECK(slot.slot < tokens && slabs[form] != nullptr);
      const std::byte* page = slabs[form] + page_index(slot.page) * forms[form].page_bytes();
      auto* k = reinterpret_cast<float*>(args.k.data + i * args.k.row_stride_bytes);
      auto* v = reinterpret_cast<float*>(args.v.data + i * args.v.row_stride_bytes);
      if (const PageForm* whole = forms[form].sealed_form.get(); whole != nullptr) {
        page_k.resize(dim * tokens);
        page_v.resize(dim * tokens);
        if (page != last) whole->read(page, page_k.data(), page_v.data());
        last = page;
        for (size_t d = 0; d < dim; ++d) k[d] = page_k[d * tokens + slot.slot], v[d] = page_v[slot.slot * dim + d];
        continue;
      }
      for (size_t d = 0; d < dim; ++d) k[d] = keys[form].number(page, slot.slot, d);
      for (size_t d = 0; d < dim; ++d) v[d] = values[form].number(page, slot.slot, d);
    }
  });
}

}  // namespace godwit::cpu
