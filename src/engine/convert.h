// Turns a model into a GGUF file of a given weight type: what `godwit quantize` does.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/source.h"

namespace godwit {

struct ConvertOptions {
  DType dtype = DType::kQ8_0;               // of matrices
  std::optional<DType> embedding_dtype;     // of token embedding and output matrix; unset: `dtype`
  std::string name;                         // general.name; empty: what it was, or the folder's name
  int threads = 0;                          // 0: all cores
  std::function<void(double)> on_progress;  // share of bytes done
};

struct ConvertReport {
  uint64_t bytes = 0;    // of the file
  uint64_t weights = 0;  // numbers
  // Matrices whose rows are no multiple of the type's block, with the type they got instead.
  std::vector<std::pair<std::string, DType>> exceptions;
};

// What a tensor becomes. Norms, biases and routers stay f32; a matrix whose rows are no multiple of the type's block
// is an exception: it gets the first of q8_0, f16 and f32 that fits.
struct WeightType {
  DType dtype = DType::kF32;
  bool exception = false;
};
WeightType choose_weight_type(std::string_view name, std::span<const int64_t> shape, const ConvertOptions& options);

// The file appears only when it is complete.
Result<ConvertReport> convert_model(const ModelSource& source, const ConvertOptions& options,
                                    const std::filesystem::path& path);

}  // namespace godwit
