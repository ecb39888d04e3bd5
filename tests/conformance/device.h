// A back-end under test with the tensors made for it. Values go in and out through upload() and download() only, so the
// tests hold for back-ends whose memory the host cannot read.
#pragma once

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace godwit::test {

using Floats = std::vector<float>;

class Device {
 public:
  explicit Device(const std::string& simd, int threads = 2, Phase phase = Phase::kPrefill);
  explicit Device(const std::tuple<std::string, Phase>& way, int threads = 2)
      : Device(std::get<std::string>(way), threads, std::get<Phase>(way)) {}
  const std::string& target() const { return target_; }
  Phase phase() const { return phase_; }
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
  Phase phase_;
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
};

// How a call is made: the SIMD target, and the phase that its matrix products are for.
using Way = std::tuple<std::string, Phase>;

// What the machine runs, and the tile unit's kernels on emulated tiles where it can run those.
std::vector<std::string> tested_targets();
// What products with weights of a type round their operands to.
enum class Rounding {
  kNone,
  kBf16,       // both
  kEightBits,  // activations alone, per block of 32
  kTileBits,   // both to 8 bits, per unit of 256
};
Rounding rounding_of(const Device& device, DType dtype);
Floats rounded_to_bf16(Floats values);
// Per block of `block` values of a row, or fewer at its end.
Floats rounded_to_8_bits(Floats values, int64_t columns, int64_t block);

class OnEveryTarget : public testing::TestWithParam<std::string> {};

class InEveryWay : public testing::TestWithParam<Way> {};
inline auto every_way() {
  return testing::Combine(testing::ValuesIn(tested_targets()), testing::Values(Phase::kPrefill, Phase::kDecode));
}
std::string way_name(const testing::TestParamInfo<Way>& info);

// Normally distributed values with the given spread; the same seed gives the same values.
Floats random_floats(size_t count, uint32_t seed, float spread = 1);

// Rows `rows` of a matrix with `columns` columns.
Floats pick_rows(const Floats& matrix, int64_t columns, const std::vector<int64_t>& rows);

// |got - want| <= absolute + relative * |want| for every element.
void expect_close(const Floats& got, const Floats& want, float relative, float absolute = 0);
// The same bits, element by element.
void expect_same(const Floats& got, const Floats& want);

}  // namespace godwit::test
