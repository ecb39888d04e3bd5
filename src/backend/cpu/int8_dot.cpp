#include "backend/cpu/int8_dot.h"

#include "backend/cpu/int8_panel-inl.h"
#include "backend/cpu/int8_row-inl.h"
#include "base/check.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

template <class Type>
const Int8Type& type_of() {
  using P = Panel<Type>;
  static constexpr Int8Type type{Type::kX,
                                 {dot<Type, 1>, dot<Type, 2>, dot<Type, 3>, dot<Type, 4>},
                                 P::kUnitBytes,
                                 P::fill,
                                 {P::template dot<4>, P::template dot<5>, P::template dot<6>}};
  return type;
}

}  // namespace

const Int8Type& int8_type(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return type_of<Q4_0Codes>();
    case DType::kQ4_1:
      return type_of<Q4_1Codes>();
    case DType::kQ5_0:
      return type_of<Q5_0Codes>();
    case DType::kQ5_1:
      return type_of<Q5_1Codes>();
    case DType::kQ8_0:
      return type_of<Q8_0Codes>();
    case DType::kQ2_K:
      return type_of<Q2_KCodes>();
    case DType::kQ3_K:
      return type_of<Q3_KCodes>();
    case DType::kQ4_K:
      return type_of<Q4_KCodes>();
    case DType::kQ5_K:
      return type_of<Q5_KCodes>();
    case DType::kQ6_K:
      return type_of<Q6_KCodes>();
    case DType::kIQ4_NL:
      return type_of<IQ4_NLCodes>();
    case DType::kIQ4_XS:
      return type_of<IQ4_XSCodes>();
    case DType::kMXFP4:
      return type_of<MXFP4Codes>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(false, "{} weights are not multiplied with 8 bits", dtype_name(dtype));
}

}  // namespace godwit::cpu
GODWIT_BF16_END
