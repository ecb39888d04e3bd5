// Coordinates for `xquant`: singular vectors of the weights that K and V come from. Needs no text.
#pragma once

#include <stop_token>
#include <utility>
#include <vector>

#include "kv/codec_tables.h"
#include <godwit/engine.h>

namespace godwit {

// The eigenvectors of the symmetric matrix[size, size] as rows, those of the largest eigenvalues first; values[size]
// are those.
struct Eigenvectors {
  std::vector<double> values, rows;
};
Eigenvectors eigenvectors(std::vector<double> matrix, size_t size);

// Tensors and settings of the side file. Of each KV head those of K and V are [head_dim, head_dim], orthonormal. K's
// weights are taken with the gain of the norm before them, and with that of the norm behind, where the model has one.
struct WeightBases {
  std::vector<CodecTable> tables;
  std::vector<std::pair<std::string, uint32_t>> settings;
};
Result<WeightBases> fit_weight_bases(const Engine& engine, const std::stop_token& stop = {});

}  // namespace godwit
