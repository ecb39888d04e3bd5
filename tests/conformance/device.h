// A back-end under test with the tensors made for it. Values go in and out through upload() and download() only, so the
// tests hold for back-ends whose memory the host cannot read.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace godwit::test {

using Floats = std::vector<float>;

class Device {
 public:
  explicit Device(const std::string& simd, int threads = 2);
  const std::string& target() const { return target_; }
  Backend& operator*() { return *backend_; }
  Backend* operator->() { return backend_.get(); }

  // A tensor of `dtype` that holds `values`, converted. With `gap` > 0, rows of a matrix of plain numbers are that many
  // elements further apart, and the gaps hold NaN: reading one spoils a result, writing one fails gaps_intact().
  Tensor make(std::initializer_list<int64_t> dims, const Floats& values, DType dtype = DType::kF32, int64_t gap = 0);
  Tensor make_ints(std::initializer_list<int64_t> dims, const std::vector<int32_t>& values);

  Floats read(const Tensor& tensor);
  std::vector<int32_t> read_ints(const Tensor& tensor);
  bool gaps_intact(const Tensor& matrix, int64_t gap);

 private:
  std::byte* store(std::span<const std::byte> bytes);
  std::string target_;
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
};

// What the machine runs, and the tile unit's kernels on emulated tiles where it can run those.
std::vector<std::string> tested_targets();
// Whether products with weights of this type round both operands to bf16 on the target.
bool rounds_to_bf16(const std::string& target, DType dtype);
Floats rounded_to_bf16(Floats values);

class OnEveryTarget : public testing::TestWithParam<std::string> {};

// Normally distributed values with the given spread; the same seed gives the same values.
Floats random_floats(size_t count, uint32_t seed, float spread = 1);

// Rows `rows` of a matrix with `columns` columns.
Floats pick_rows(const Floats& matrix, int64_t columns, const std::vector<int64_t>& rows);

// |got - want| <= absolute + relative * |want| for every element.
void expect_close(const Floats& got, const Floats& want, float relative, float absolute = 0);
// The same bits, element by element.
void expect_same(const Floats& got, const Floats& want);

}  // namespace godwit::test
