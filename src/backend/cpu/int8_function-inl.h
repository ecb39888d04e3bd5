// Which class of int8_types-inl.h stands for a type.
#pragma once

#include "backend/cpu/int8_types-inl.h"
#include "base/check.h"
#include "tensor/dtype.h"

GODWIT_BF16_BEGIN
namespace godwit::cpu {
namespace {

// What Functions::of<Type>() gives for the class of a type.
template <class Functions>
const auto& int8_function(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Functions::template of<Q4_0Codes>();
    case DType::kQ4_1:
      return Functions::template of<Q4_1Codes>();
    case DType::kQ5_0:
      return Functions::template of<Q5_0Codes>();
    case DType::kQ5_1:
      return Functions::template of<Q5_1Codes>();
    case DType::kQ8_0:
      return Functions::template of<Q8_0Codes>();
    case DType::kQ2_K:
      return Functions::template of<Q2_KCodes>();
    case DType::kQ3_K:
      return Functions::template of<Q3_KCodes>();
    case DType::kQ4_K:
      return Functions::template of<Q4_KCodes>();
    case DType::kQ5_K:
      return Functions::template of<Q5_KCodes>();
    case DType::kQ6_K:
      return Functions::template of<Q6_KCodes>();
    case DType::kIQ4_NL:
      return Functions::template of<IQ4_NLCodes>();
    case DType::kIQ4_XS:
      return Functions::template of<IQ4_XSCodes>();
    case DType::kMXFP4:
      return Functions::template of<MXFP4Codes>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI32:
      break;
  }
  GODWIT_CHECK(false, "{} weights are not multiplied with 8 bits", dtype_name(dtype));
}

}  // namespace
}  // namespace godwit::cpu
GODWIT_BF16_END
