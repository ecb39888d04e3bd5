#include "backend/cpu/int8_dot.h"

#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_panel-inl.h"
#include "backend/cpu/int8_row-inl.h"
#include "backend/cpu/int8_strips-inl.h"

GODWIT_AVX512_BEGIN
namespace godwit::cpu {
namespace {

struct DotFunctions {
  template <class Type>
  static const Int8Type& of() {
    using P = Panel<Type>;
    static constexpr RowDots rows{{dot<Type, 1>, dot<Type, 2>, dot<Type, 3>, dot<Type, 4>},
                                  P::kUnitBytes,
                                  P::fill,
                                  P::fill_strips,
                                  {P::template dot<4>, P::template dot<5>}};
    static constexpr Int8Type type{Type::kX, StripDots<Type>::kAll, &rows};
    return type;
  }
};

}  // namespace

const Int8Type& int8_type(DType dtype) {
  return int8_function<DotFunctions>(dtype);
}

}  // namespace godwit::cpu
GODWIT_AVX512_END
