// Attention over pages for every SIMD target of Highway, in fp32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/attention_walk-inl.h"
#include "backend/cpu/dispatch.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/partials.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

void attention(Context& context, const AttentionArgs& args) {
  if (args.format.packed()) return AttentionDrive<Walk<Codes>>(context, args).run();
  switch (args.format.dtype) {
    case DType::kF16:
      return AttentionDrive<Walk<F16>>(context, args).run();
    case DType::kBF16:
      return AttentionDrive<Walk<BF16>>(context, args).run();
    default:
      return AttentionDrive<Walk<float>>(context, args).run();
  }
}

void fill(Kernels& table) {
  table.attention = table.attention_f32 = &attention;
  table.finish_attention = table.finish_attention_f32 = &finish_attention<Walk<float>>;
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(fill);

void fill_attention(Kernels& table, int64_t target) {
  GODWIT_DISPATCH(fill, target)(table);
  table.kv_write = &kv_write;
  table.merge_partials = &merge_partials;
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
