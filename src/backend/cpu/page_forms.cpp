#include "backend/cpu/page_forms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/page_forms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backend/cpu/page_forms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace godwit::cpu {
namespace HWY_NAMESPACE {

FormReaders form_readers() {
  return {&read_form_keys, &read_form_values};
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit::cpu {

HWY_EXPORT(form_readers);

FormReaders best_form_readers() {
  return HWY_DYNAMIC_DISPATCH(form_readers)();
}

}  // namespace godwit::cpu
#endif  // HWY_ONCE
