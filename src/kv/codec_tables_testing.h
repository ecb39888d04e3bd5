// A side file of `xquant` for tests: bases that are orthonormal, and differ from head to head.
#pragma once

#include <cmath>
#include <random>

#include "kv/codec_tables.h"

namespace godwit {

// The mirror images of the axes in a random plane.
inline std::vector<float> mirrored_axes(size_t dims, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> across(dims);
  double square = 0;
  for (double& x : across) x = normal(random), square += x * x;
  std::vector<float> axes(dims * dims);
  for (size_t i = 0; i < dims; ++i)
    for (size_t j = 0; j < dims; ++j)
      axes[i * dims + j] = static_cast<float>((i == j ? 1 : 0) - 2 * across[i] * across[j] / square);
  return axes;
}

struct XquantFile {
  int64_t heads = 1, head_dim = 64;
  uint32_t rotary_dim = 64, pairs = 0;
  float factor = 1;  // of the bases
};

inline Status write_xquant_file(const XquantFile& file, const std::string& path) {
  const auto dims = static_cast<size_t>(file.head_dim);
  const int64_t frequencies = file.rotary_dim / 2;
  const std::vector<int64_t> bases = {file.heads, file.head_dim, file.head_dim};
  CodecTable k{"k", bases, {}, DType::kF32}, v{"v", bases, {}, DType::kF32};
  CodecTable rope{"rope", {file.heads, frequencies}, {}, DType::kF32};
  for (uint32_t head = 0; head < static_cast<uint32_t>(file.heads); ++head) {
    for (CodecTable* table : {&k, &v})
      for (float x : mirrored_axes(dims, 2 * head + (table == &k ? 1 : 2))) table->numbers.push_back(file.factor * x);
    for (int64_t i = 0; i < frequencies; ++i)
      rope.numbers.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(frequencies)));
  }
  return write_codec_tables("xquant", "a test", {{"rope_pairs", file.pairs}, {"rotary_dim", file.rotary_dim}},
                            {k, v, rope}, path);
}

}  // namespace godwit
