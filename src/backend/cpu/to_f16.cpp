#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/to_f16.cpp"
// The first of these includes this file again and must come before what is compiled per target.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "backend/cpu/to_f16.h"

#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu::HWY_NAMESPACE {

void to_f16(const float* from, uint16_t* to, size_t count) {
  size_t i = 0;
  // Older targets have no instruction for it, and Highway's way around that rounds differently.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, from + i)), half, reinterpret_cast<hwy::float16_t*>(to + i));
#endif
  for (; i < count; ++i) to[i] = float_to_f16(from[i]);
}

}  // namespace godwit::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {
HWY_EXPORT(to_f16);
void to_f16(const float* from, uint16_t* to, size_t count) {
  HWY_DYNAMIC_DISPATCH(to_f16)(from, to, count);
}
}  // namespace godwit::cpu
#endif
