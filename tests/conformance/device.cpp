#include "device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/half.h"
#include "tensor/quant.h"

namespace godwit::test {

Device::Device(const std::string& simd, int threads, Phase phase) : target_(simd), phase_(phase) {
  CpuOptions options;
  options.simd = simd;
  options.threads = threads;
  auto made = make_cpu_backend(options);
  GODWIT_CHECK(made.has_value(), "{}", made.error().message);
  backend_ = std::move(*made);
}

std::byte* Device::store(std::span<const std::byte> bytes) {
  auto buffer = backend_->allocate(std::max<size_t>(bytes.size(), 1));
  GODWIT_CHECK(buffer.has_value());
  backend_->upload(buffer->data(), bytes);
  buffers_.push_back(*buffer);
  return buffer->data();
}

Tensor Device::make(std::initializer_list<int64_t> dims, const Floats& values, DType dtype, int64_t gap) {
  Tensor tensor(nullptr, dtype, dims);
  GODWIT_CHECK(tensor.elements() == static_cast<int64_t>(values.size()));
  const size_t row_bytes = tensor.row_stride_bytes, gap_bytes = static_cast<size_t>(gap) * sizeof(float);
  GODWIT_CHECK(gap == 0 || dtype == DType::kF32);
  tensor.row_stride_bytes = row_bytes + gap_bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.rows()) * tensor.row_stride_bytes);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; gap > 0 && at < bytes.size(); at += sizeof nan) std::memcpy(bytes.data() + at, &nan, sizeof nan);
  const auto columns = static_cast<size_t>(tensor.row_elements());
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    const auto r = static_cast<size_t>(row);
    quantize(dtype, values.data() + r * columns, bytes.data() + r * tensor.row_stride_bytes, columns);
  }
  tensor.data = store(bytes);
  return tensor;
}

Tensor Device::make_ints(std::initializer_list<int64_t> dims, const std::vector<int32_t>& values) {
  Tensor tensor(nullptr, DType::kI32, dims);
  GODWIT_CHECK(tensor.elements() == static_cast<int64_t>(values.size()));
  tensor.data = store(std::as_bytes(std::span(values)));
  return tensor;
}

Floats Device::read(const Tensor& tensor) {
  Floats values(static_cast<size_t>(tensor.elements()));
  const auto columns = static_cast<size_t>(tensor.row_elements());
  for (size_t row = 0; row < static_cast<size_t>(tensor.rows()); ++row)
    backend_->download(std::as_writable_bytes(std::span(values).subspan(row * columns, columns)),
                       tensor.data + row * tensor.row_stride_bytes);
  return values;
}

std::vector<int32_t> Device::read_ints(const Tensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.elements()));
  backend_->download(std::as_writable_bytes(std::span(values)), tensor.data);
  return values;
}

bool Device::gaps_intact(const Tensor& matrix, int64_t gap) {
  Tensor after = matrix;
  after.data += dtype_bytes(matrix.dtype, static_cast<size_t>(matrix.row_elements()));
  after.rank = 2;
  after.shape = {matrix.rows(), gap, 1, 1};
  const Floats values = read(after);
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

std::vector<std::string> tested_targets() {
  std::vector<std::string> names(cpu_simd_targets().begin(), cpu_simd_targets().end());
  if (make_cpu_backend({.threads = 1, .simd = "AMX_EMULATED"}).has_value()) names.emplace_back("AMX_EMULATED");
  return names;
}

std::string way_name(const testing::TestParamInfo<Way>& info) {
  return std::get<std::string>(info.param) + (std::get<Phase>(info.param) == Phase::kDecode ? "_decode" : "_prefill");
}

Rounding rounding_of(const Device& device, DType dtype) {
  const std::string& target = device.target();
  const bool in_bf16 = target.starts_with("AMX_") || target == "AVX512_BF16";
  const bool in_8_bits =
      target == "AVX512_VNNI" || target == "AVX512_INT8" || target == "AVX_VNNI" || target == "AVX2_INT8";
  if (dtype == DType::kF32 || (!in_bf16 && !in_8_bits)) return Rounding::kNone;
  if (!is_quantized(dtype)) return in_bf16 ? Rounding::kBf16 : Rounding::kNone;
  if (device.phase() == Phase::kDecode || !target.starts_with("AMX_")) return Rounding::kEightBits;
  return target != "AMX_BF16" && dtype_bytes(dtype, 256) * 8 <= 5 * 256 ? Rounding::kTileBits : Rounding::kBf16;
}

Floats rounded_to_8_bits(Floats values, int64_t columns, int64_t block) {
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(columns)) {
    const size_t row_end = row + static_cast<size_t>(columns);
    for (size_t begin = row; begin < row_end; begin += static_cast<size_t>(block)) {
      const size_t end = std::min(begin + static_cast<size_t>(block), row_end);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
      const float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
      for (size_t i = begin; i < end; ++i) values[i] = std::nearbyint(values[i] * inverse) * scale;
    }
  }
  return values;
}

Floats rounded_to_bf16(Floats values) {
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  return values;
}

Floats random_floats(size_t count, uint32_t seed, float spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  Floats values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

Floats pick_rows(const Floats& matrix, int64_t columns, const std::vector<int64_t>& rows) {
  Floats picked;
  for (int64_t row : rows)
    picked.insert(picked.end(), matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns);
  return picked;
}

void expect_close(const Floats& got, const Floats& want, float relative, float absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - want[i]), absolute + relative * std::fabs(want[i]))
        << "element " << i << ": " << got[i] << " instead of " << want[i];
}

void expect_same(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << "element " << i << ": " << got[i] << " instead of " << want[i];
}

}  // namespace godwit::test
