// Products in 8 bits, step by step: what x is rounded to, sums against fp64, and all kernels to the bit.
#include "backend/cpu/int8_dot.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "backend/cpu/features.h"
#include "backend/cpu/strips.h"
#include "tensor/quant.h"

namespace godwit::cpu {
namespace {

std::vector<float> random_floats(size_t count, uint32_t seed, float spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<DType> quantized_types() {
  std::vector<DType> types;
  for (const DTypeInfo& info : all_dtypes())
    if (is_quantized(info.dtype)) types.push_back(info.dtype);
  return types;
}

// A row of x in whole numbers, in order, as the header says.
struct Rounded {
  std::vector<int> codes;
  std::vector<float> scales;  // per 32

  explicit Rounded(std::span<const float> x) {
    for (size_t block = 0; block < x.size(); block += 32) {
      const auto values = x.subspan(block, 32);
      float largest = 0;
      for (float value : values) largest = std::max(largest, std::fabs(value));
      scales.push_back(largest / 127);
      const float inverse = largest > 0 ? 127 / largest : 0;
      for (float value : values) codes.push_back(static_cast<int>(std::nearbyint(value * inverse)));
    }
  }
  double value(size_t i) const { return static_cast<double>(scales[i / 32]) * codes[i]; }
};

struct Units {
  Buffer memory;
  XUnit* at;
  size_t count;
  Units(const std::vector<float>& x, size_t in, const XLayout& layout) : count((in + kUnitValues - 1) / kUnitValues) {
    const size_t rows = x.size() / in;
    memory = aligned_buffer(rows * count * sizeof(XUnit));
    at = reinterpret_cast<XUnit*>(memory.data());
    for (size_t row = 0; row < rows; ++row) quantize_x(x.data() + row * in, in, layout, at + row * count);
  }
};

class Int8DotTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx512_vnni()) GTEST_SKIP() << "no AVX512_VNNI";
  }
};

TEST_F(Int8DotTest, XIsRoundedAsStated) {
  for (DType dtype : quantized_types()) {
    SCOPED_TRACE(dtype_name(dtype));
    const XLayout& layout = int8_type(dtype).x;
    const size_t in = 352;
    const std::vector<float> x = random_floats(in, 1, 3);
    const Rounded want(x);
    const Units units(x, in, layout);
    for (size_t i = 0; i < 2 * kUnitValues; ++i) {
      const XUnit& unit = units.at[i / kUnitValues];
      const size_t place = layout.places[i % kUnitValues / 16], group = i % kUnitValues / (kUnitValues / layout.groups);
      ASSERT_EQ(unit.codes[16 * place + i % 16], i < in ? want.codes[i] : 0) << i;
      ASSERT_EQ(unit.scales[group], i < in ? want.scales[i / 32] : 0) << i;
    }
  }
}

TEST_F(Int8DotTest, NothingAndTheUnusual) {
  const XLayout& layout = int8_type(DType::kQ8_0).x;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(256, 0);
  x[32] = 1e-31F;  // as good as nothing
  x[64] = 3e38F;   // large
  x[65] = -3e38F;
  x[96] = -kInfinity;
  x[128] = 1;
  x[129] = kNan;
  const Units units(x, 256, layout);
  const XUnit& unit = *units.at;
  EXPECT_EQ(unit.scales[0], 0);
  EXPECT_EQ(unit.scales[1], 0);
  EXPECT_EQ(unit.codes[32], 0);
  EXPECT_FLOAT_EQ(unit.scales[2], 3e38F / 127);
  EXPECT_EQ(unit.codes[64], 127);
  EXPECT_EQ(unit.codes[65], -127);
  EXPECT_TRUE(std::isnan(unit.scales[3]));
  EXPECT_TRUE(std::isnan(unit.scales[4]));
  EXPECT_EQ(unit.offsets[5], 0);
}

// Sums of every type and number of rows, against fp64: of what x is rounded to, up to rounding in fp32; and of x
// itself, up to half a step per term.
TEST_F(Int8DotTest, AgreesWithFp64) {
  for (DType dtype : quantized_types()) {
    const Int8Type& type = int8_type(dtype);
    const bool super = dtype_info(dtype).block_elements == 256;
    for (size_t in : super ? std::vector<size_t>{256, 768, 2048} : std::vector<size_t>{32, 96, 256, 352, 2080}) {
      for (size_t rows : {1, 3, 4}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " of " << in << ", rows " << rows);
        const size_t row_bytes = dtype_bytes(dtype, in), x_rows = kDotRowsOfX;
        const std::vector<float> values = random_floats(rows * in, 2, 0.1F), x = random_floats(x_rows * in, 3, 2);
        std::vector<std::byte> stored(rows * row_bytes);  // not a byte more: nothing else may be read
        std::vector<float> weights(rows * in);
        for (size_t row = 0; row < rows; ++row) {
          quantize(dtype, values.data() + row * in, stored.data() + row * row_bytes, in);
          dequantize(dtype, stored.data() + row * row_bytes, weights.data() + row * in, in);
        }
        const Units units(x, in, type.x);
        for (size_t count = 1; count <= x_rows; ++count) {
          float sums[kDotRowsOfX * 8];
          type.rows->dot[count - 1]({stored.data(), row_bytes, rows, in}, units.at, units.count, sums, 8);
          for (size_t m = 0; m < count; ++m) {
            const std::span row(x.data() + m * in, in);
            const Rounded rounded(row);
            for (size_t n = 0; n < rows; ++n) {
              double sum = 0, exact = 0, steps = 0, magnitude = 0;
              for (size_t i = 0; i < in; ++i) {
                const double weight = weights[n * in + i];
                double largest = 0;
                for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j)
                  largest = std::max(largest, static_cast<double>(std::fabs(weights[n * in + j])));
                sum += weight * rounded.value(i);
                exact += weight * static_cast<double>(x[m * in + i]);
                steps += std::fabs(weight) * 0.501 * static_cast<double>(rounded.scales[i / 32]);
                magnitude += largest * std::fabs(rounded.value(i));
              }
              const double got = sums[m * 8 + n];
              ASSERT_NEAR(got, sum, 1e-6 * magnitude) << m << ", " << n;
              ASSERT_NEAR(got, exact, steps + 1e-6 * magnitude) << m << ", " << n;
            }
          }
        }
      }
    }
  }
}

// Weight rows in panels give the sums of rows as they lie, to the bit.
TEST_F(Int8DotTest, PanelsAgreeToTheBit) {
  for (DType dtype : quantized_types()) {
    const Int8Type& type = int8_type(dtype);
    const bool super = dtype_info(dtype).block_elements == 256;
    for (size_t in : super ? std::vector<size_t>{256, 2304} : std::vector<size_t>{32, 352, 2048, 4256}) {
      for (size_t rows : {1, 17, 32}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " of " << in << ", rows " << rows);
        const size_t row_bytes = dtype_bytes(dtype, in), x_rows = kPanelRowsOfX;
        const std::vector<float> values = random_floats(rows * in, 4, 0.1F), x = random_floats(x_rows * in, 5, 2);
        std::vector<std::byte> stored(rows * row_bytes);
        for (size_t row = 0; row < rows; ++row)
          quantize(dtype, values.data() + row * in, stored.data() + row * row_bytes, in);
        const Units units(x, in, type.x);
        const Buffer panel = aligned_buffer(units.count * type.rows->panel_unit_bytes);
        type.rows->fill({stored.data(), row_bytes, rows, in}, units.count, panel.data());
        for (size_t count = kPanelLeastRowsOfX; count <= x_rows; ++count) {
          std::vector<float> sums(count * kPanelWeightRows);
          type.rows->panel_dot[count - kPanelLeastRowsOfX](panel.data(), units.at, units.count, sums.data(),
                                                           kPanelWeightRows);
          for (size_t m = 0; m < count; ++m)
            for (size_t n = 0; n < rows; n += kDotWeightRows) {
              float want[kDotWeightRows];
              const size_t some = std::min(kDotWeightRows, rows - n);
              type.rows->dot[0]({stored.data() + n * row_bytes, row_bytes, some, in}, units.at + m * units.count,
                                units.count, want, kDotWeightRows);
              for (size_t i = 0; i < some; ++i)
                ASSERT_EQ(sums[m * kPanelWeightRows + n + i], want[i]) << m << ", " << n + i;
            }
        }
      }
    }
  }
}

// Panels are the same bytes, whatever they are made of; a strip that is alone fills its half.
TEST_F(Int8DotTest, PanelsOfStripsAreThoseOfRows) {
  for (DType dtype : quantized_types()) {
    const RowDots& dots = *int8_type(dtype).rows;
    for (size_t in : {256, 2304})
      for (size_t strips : {1, 2}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " of " << in << ", strips " << strips);
        const size_t rows = strips * kStripRows, row_bytes = dtype_bytes(dtype, in), units = in / kUnitValues;
        const std::vector<float> values = random_floats(rows * in, 9, 0.1F);
        std::vector<std::byte> stored(rows * row_bytes), strip(stored.size());
        for (size_t row = 0; row < rows; ++row)
          quantize(dtype, values.data() + row * in, stored.data() + row * row_bytes, in);
        for (size_t i = 0; i < strips; ++i)
          strip_copies(dtype).pack(stored.data() + i * kStripRows * row_bytes, row_bytes, units,
                                   strip.data() + i * kStripRows * row_bytes);
        const size_t bytes = units * dots.panel_unit_bytes;
        const Buffer of_rows = aligned_buffer(bytes), of_strips = aligned_buffer(bytes);
        dots.fill({stored.data(), row_bytes, rows, in}, units, of_rows.data());
        dots.fill_strips(strip.data(), strips, units, of_strips.data());
        constexpr size_t kLine = 2 * 64;  // of both strips
        for (size_t at = 0; at < bytes; at += kLine)
          ASSERT_EQ(std::memcmp(of_rows.data() + at, of_strips.data() + at, 64 * strips), 0) << at;
      }
  }
}

struct StripUnit {
  bool (*has)();
  const Int8Type& (*type)(DType);
};
constexpr StripUnit kStripUnits[] = {{has_avx512_vnni, int8_type},
                                     {has_avx512, int8_type_avx512},
                                     {has_avx_vnni, int8_type_avx_vnni},
                                     {has_avx2, int8_type_avx2}};

// Strips give the same sums in vectors of both widths and by all instructions, those of rows as they lie, to the bit;
// and a strip has all of its rows.
TEST(Int8Strips, AgreeToTheBit) {
  for (DType dtype : quantized_types()) {
    std::vector<const Int8Type*> units_here;
    for (const StripUnit& unit : kStripUnits)
      if (unit.has()) units_here.push_back(&unit.type(dtype));
    if (units_here.empty()) GTEST_SKIP() << "no AVX2";
    const Int8Type& type = *units_here.front();
    for (size_t in : {256, 1536}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " of " << in);
      const size_t row_bytes = dtype_bytes(dtype, in), x_rows = kStripRowsOfX;
      const std::vector<float> values = random_floats(kStripRows * in, 6, 0.1F), x = random_floats(x_rows * in, 7, 2);
      std::vector<std::byte> stored(kStripRows * row_bytes), strip(stored.size()), back(stored.size());
      for (size_t row = 0; row < kStripRows; ++row)
        quantize(dtype, values.data() + row * in, stored.data() + row * row_bytes, in);
      const Units units(x, in, type.x);
      strip_copies(dtype).pack(stored.data(), row_bytes, units.count, strip.data());
      strip_copies(dtype).unpack(strip.data(), row_bytes, units.count, back.data());
      ASSERT_EQ(back, stored);
      for (size_t count = 1; count <= x_rows; ++count) {
        std::vector<float> wide(count * kStripRows), sums(count * kStripRows);
        type.strips[count - 1](strip.data(), units.at, units.count, false, wide.data(), kStripRows);
        for (const Int8Type* other : units_here) {
          other->strips[count - 1](strip.data(), units.at, units.count, false, sums.data(), kStripRows);
          ASSERT_EQ(sums, wide);
        }
        for (size_t m = 0; m < count && type.rows != nullptr; ++m)
          for (size_t n = 0; n < kStripRows; n += kDotWeightRows) {
            float want[kDotWeightRows];
            type.rows->dot[0]({stored.data() + n * row_bytes, row_bytes, kDotWeightRows, in},
                              units.at + m * units.count, units.count, want, kDotWeightRows);
            for (size_t i = 0; i < kDotWeightRows; ++i)
              ASSERT_EQ(wide[m * kStripRows + n + i], want[i]) << m << ", " << n + i;
          }
      }
    }
  }
}

// The largest codes and the largest x: nothing is lost in 16 bits.
class Int8DotExtremesTest : public testing::TestWithParam<StripUnit> {};
INSTANTIATE_TEST_SUITE_P(Units, Int8DotExtremesTest, testing::ValuesIn(kStripUnits));

TEST_P(Int8DotExtremesTest, NothingOverflows) {
  if (!GetParam().has()) GTEST_SKIP() << "not on this machine";
  for (DType dtype : quantized_types()) {
    const Int8Type& type = GetParam().type(dtype);
    const size_t in = 512, row_bytes = dtype_bytes(dtype, in);
    for (float sign : {1.0F, -1.0F}) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << sign);
      std::vector<float> values(kStripRows * in), weights(in), x(in);
      std::mt19937 generator(8);
      for (float& value : values) value = generator() % 8 == 0 ? -sign : sign;
      for (size_t i = 0; i < in; ++i) x[i] = i % 37 == 0 ? -3.0F : 3.0F;
      std::vector<std::byte> stored(kStripRows * row_bytes), strip(stored.size());
      for (size_t row = 0; row < kStripRows; ++row)
        quantize(dtype, values.data() + row * in, stored.data() + row * row_bytes, in);
      const Units units(x, in, type.x);
      strip_copies(dtype).pack(stored.data(), row_bytes, units.count, strip.data());
      float sums[kStripRows];
      type.strips[0](strip.data(), units.at, units.count, true, sums, kStripRows);
      for (size_t row = 0; row < kStripRows; ++row) {
        dequantize(dtype, stored.data() + row * row_bytes, weights.data(), in);
        double want = 0, magnitude = 0;
        for (size_t i = 0; i < in; ++i) {
          want += static_cast<double>(weights[i]) * static_cast<double>(x[i]);
          magnitude += std::fabs(static_cast<double>(weights[i]) * static_cast<double>(x[i]));
        }
        ASSERT_NEAR(sums[row], want, 1e-6 * magnitude) << row;
      }
    }
  }
}

}  // namespace
}  // namespace godwit::cpu
