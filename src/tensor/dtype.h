// Element types: plain numbers and the block-quantized types of GGUF.
//
// A quantized row is a sequence of blocks of `block_elements` values in `block_bytes` bytes; rows are whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace godwit {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // lower case, as on the command line: "q4_0"
  int gguf_id;            // the type number in a GGUF file
  int block_elements;
  int block_bytes;
};

std::span<const DTypeInfo> all_dtypes();
const DTypeInfo& dtype_info(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_gguf_id(uint32_t id);

inline std::string_view dtype_name(DType dtype) {
  return dtype_info(dtype).name;
}
inline bool is_quantized(DType dtype) {
  return dtype_info(dtype).block_elements > 1;
}

// Bytes of `elements` values. REQUIRES: elements is a multiple of block_elements.
inline size_t dtype_bytes(DType dtype, size_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  return elements / static_cast<size_t>(info.block_elements) * static_cast<size_t>(info.block_bytes);
}

}  // namespace godwit
