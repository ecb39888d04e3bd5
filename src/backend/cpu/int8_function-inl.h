// Which class of int8_types-inl.h stands for a type.
#pragma once

#include "backend/cpu/int8_types-inl.h"

namespace godwit::cpu {
namespace {

template <class Functions>
struct OfCodes {
  template <class Layout>
  static const auto& of() {
    return Functions::template of<Codes<Layout>>();
  }
};

// What Functions::of<Type>() gives for the class of a type.
template <class Functions>
const auto& int8_function(DType dtype) {
  return of_layout<OfCodes<Functions>>(dtype);
}

}  // namespace
}  // namespace godwit::cpu
