// For tests: the files that tests/golden/make_quant_data.py makes, read in order, and conversions of whole vectors.
#pragma once

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/quant.h"

namespace godwit {

class GoldenReader {
 public:
  explicit GoldenReader(const std::string& name) {
    std::ifstream file(std::string(GODWIT_TEST_DATA "/quant/") + name, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    EXPECT_FALSE(bytes_.empty()) << name;
  }
  bool done() const { return at_ >= bytes_.size(); }

  template <class T>
  std::vector<T> take(size_t count) {
    std::vector<T> values(count);
    EXPECT_LE(at_ + count * sizeof(T), bytes_.size());
    if (at_ + count * sizeof(T) <= bytes_.size()) std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return values;
  }
  template <class T>
  T take() {
    return take<T>(1)[0];
  }

 private:
  std::vector<char> bytes_;
  size_t at_ = 0;
};

inline std::vector<std::byte> quantized(DType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(dtype_bytes(type, values.size()));
  quantize(type, values.data(), blocks.data(), values.size());
  return blocks;
}

inline std::vector<float> dequantized(DType type, const std::vector<std::byte>& blocks, size_t elements) {
  std::vector<float> values(elements);
  dequantize(type, blocks.data(), values.data(), elements);
  return values;
}

inline std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  return dequantized(type, quantized(type, values), values.size());
}

inline double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

inline std::vector<float> gaussian_values(size_t count, float deviation, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(generator);
  return values;
}

inline std::string type_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(dtype_name(info.param));
}

inline std::vector<DType> block_types() {
  std::vector<DType> types;
  for (const DTypeInfo& info : all_dtypes())
    if (info.block_elements > 1) types.push_back(info.dtype);
  return types;
}

}  // namespace godwit
