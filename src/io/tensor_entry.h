// A named tensor inside a model file, the same for GGUF and safetensors.
//
// The readers guarantee: 1 to kMaxRank dimensions (a scalar is [1]), a number of elements that fits int64_t, a last
// dimension of whole quantization blocks, and bytes.size() equal to what dtype and shape ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include <godwit/status.h>

namespace godwit {

struct TensorEntry {
  static constexpr size_t kMaxRank = 8;  // GGUF has at most 4

  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;        // row-major, outermost first: a weight is [out, in]
  std::span<const std::byte> bytes;  // inside the file's mapping; safetensors aligns to nothing, so copy, do not cast
};

// Bytes of a tensor, or why there can be no such tensor; the sentence lacks the tensor's name, which the caller knows.
Result<size_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

// "[4096, 32]"
std::string shape_text(std::span<const int64_t> shape);

// A name from a file as it may appear in a message: at most 100 bytes, what is not printable ASCII or valid UTF-8 as
// \xNN.
std::string printable(std::string_view name);

// Names of tensors and metadata keys: 1 to 65535 bytes of UTF-8 without control characters. `kind` begins the sentence.
Status check_name(std::string_view kind, std::string_view name);

}  // namespace godwit
