#include "backend/cpu/lines_256-inl.h"
// What follows is written for lines of any width.
#include "backend/cpu/int8_strips-inl.h"

namespace godwit::cpu {
namespace {

struct DotFunctions {
  template <class Type>
  static const Int8Type& of() {
    static constexpr Int8Type type{Type::kX, StripDots<Type>::kAll, nullptr};
    return type;
  }
};

}  // namespace

const Int8Type& int8_type_avx2(DType dtype) {
  return of_layout<DotFunctions>(dtype);
}

}  // namespace godwit::cpu
