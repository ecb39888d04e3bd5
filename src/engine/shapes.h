// Public models' shapes: sizes without weights, for files of random numbers that take as long to compute as the real
// ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/family.h"

namespace godwit {

struct ModelShape {
  std::string name;    // "llama-3.2-1b"
  ModelConfig config;  // as the family's reader would make it from a file
  const ModelFamily* family = nullptr;
  bool tied = false;      // the output matrix is the embedding
  bool qkv_bias = false;  // Qwen 2
};

std::vector<std::string> shape_names();
// kInvalidArgument lists the names there are.
Result<ModelShape> find_shape(std::string_view name);

// A tensor as a GGUF file of this shape names it; row-major, outermost dimension first.
struct ShapeTensor {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<ShapeTensor> shape_tensors(const ModelShape& shape);
uint64_t shape_parameters(const ModelShape& shape);

}  // namespace godwit
