#define GODWIT_WITHOUT_VNNI
#include "backend/cpu/lines_512-inl.h"
// What follows is written for lines of any width.
#include "backend/cpu/int8_strips-inl.h"

namespace godwit::cpu {

const Int8Type& int8_type_avx512(DType dtype) {
  return of_layout<StripsAlone>(dtype);
}

}  // namespace godwit::cpu
