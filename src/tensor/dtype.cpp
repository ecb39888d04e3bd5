#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace godwit {
namespace {

// In the order of the enum.
constexpr std::array kTypes = {
    DTypeInfo{DType::kF32, "f32", 0, 1, 4},          DTypeInfo{DType::kF16, "f16", 1, 1, 2},
    DTypeInfo{DType::kBF16, "bf16", 30, 1, 2},       DTypeInfo{DType::kI32, "i32", 26, 1, 4},
    DTypeInfo{DType::kQ4_0, "q4_0", 2, 32, 18},      DTypeInfo{DType::kQ4_1, "q4_1", 3, 32, 20},
    DTypeInfo{DType::kQ5_0, "q5_0", 6, 32, 22},      DTypeInfo{DType::kQ5_1, "q5_1", 7, 32, 24},
    DTypeInfo{DType::kQ8_0, "q8_0", 8, 32, 34},      DTypeInfo{DType::kQ2_K, "q2_k", 10, 256, 84},
    DTypeInfo{DType::kQ3_K, "q3_k", 11, 256, 110},   DTypeInfo{DType::kQ4_K, "q4_k", 12, 256, 144},
    DTypeInfo{DType::kQ5_K, "q5_k", 13, 256, 176},   DTypeInfo{DType::kQ6_K, "q6_k", 14, 256, 210},
    DTypeInfo{DType::kIQ4_NL, "iq4_nl", 20, 32, 18}, DTypeInfo{DType::kIQ4_XS, "iq4_xs", 23, 256, 136},
    DTypeInfo{DType::kMXFP4, "mxfp4", 39, 32, 17},
};

}  // namespace

std::span<const DTypeInfo> all_dtypes() {
  return kTypes;
}

const DTypeInfo& dtype_info(DType dtype) {
  const DTypeInfo& info = kTypes[static_cast<size_t>(dtype)];
  GODWIT_DCHECK(info.dtype == dtype);
  return info;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kTypes)
    if (info.name == name) return info.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_gguf_id(uint32_t id) {
  for (const DTypeInfo& info : kTypes)
    if (static_cast<uint32_t>(info.gguf_id) == id) return info.dtype;
  return std::nullopt;
}

}  // namespace godwit
