// HWY_DYNAMIC_DISPATCH for a target that the caller names. Highway's own choice is the whole process's: who changed it
// for a moment would change it for all threads, and they for him.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>
#include <hwy/targets.h>

namespace godwit::cpu {

template <class Function, size_t kTargets>
HWY_INLINE Function function_of(Function const (&table)[kTargets], int64_t target) {
  if constexpr (kTargets == 1) {
    return table[0];
  } else {
    hwy::ChosenTarget chosen;
    chosen.Update(target);
    return table[chosen.GetIndex()];
  }
}

}  // namespace godwit::cpu

// Of what HWY_EXPORT exports.
#define GODWIT_DISPATCH(FUNCTION, target) (godwit::cpu::function_of(HWY_DISPATCH_TABLE(FUNCTION), target))
