#include "backend/cpu/int8_dot.h"

#include "backend/cpu/int8_function-inl.h"
#include "backend/cpu/int8_panel-inl.h"
#include "backend/cpu/int8_row-inl.h"
#include "backend/cpu/int8_strips-inl.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

template <class Type>
constexpr StripType kStripType{
    Strip<Type>::pack,
    Strip<Type>::unpack,
    {Strip<Type>::template dot<1>, Strip<Type>::template dot<2>, Strip<Type>::template dot<3>,
     Strip<Type>::template dot<4>, Strip<Type>::template dot<5>, Strip<Type>::template dot<6>}};

template <class Type>
constexpr const StripType* strips_of() {
  if constexpr (HasStrips<Type>) return &kStripType<Type>;
  return nullptr;
}

struct DotFunctions {
  template <class Type>
  static const Int8Type& of() {
    using P = Panel<Type>;
    static constexpr Int8Type type{
        Type::kX, {dot<Type, 1>, dot<Type, 2>, dot<Type, 3>, dot<Type, 4>},     P::kUnitBytes,
        P::fill,  {P::template dot<4>, P::template dot<5>, P::template dot<6>}, strips_of<Type>()};
    return type;
  }
};

}  // namespace

const Int8Type& int8_type(DType dtype) {
  return int8_function<DotFunctions>(dtype);
}

}  // namespace godwit::cpu
GODWIT_BF16_END
