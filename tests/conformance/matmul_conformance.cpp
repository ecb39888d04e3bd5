// matmul: every weight type on every SIMD target against the reference back-end, and the bitwise invariances.
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "device.h"
#include "tensor/quant.h"

namespace godwit::test {
namespace {

// Rounding of a dot product of up to a few thousand terms, relative to the sum of the terms' magnitudes.
constexpr float kTolerance = 2e-6f;

std::vector<DType> weight_types(Backend& backend) {
  std::vector<DType> types;
  for (const DTypeInfo& info : all_dtypes())
    if (backend.supports(info.dtype)) types.push_back(info.dtype);
  return types;
}

Floats stored(DType dtype, const Floats& values, int64_t columns) {
  Floats out(values.size());
  std::vector<std::byte> row(dtype_bytes(dtype, static_cast<size_t>(columns)));
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(columns)) {
    quantize(dtype, values.data() + at, row.data(), static_cast<size_t>(columns));
    dequantize(dtype, row.data(), out.data() + at, static_cast<size_t>(columns));
  }
  return out;
}

// Each value as the largest magnitude of its block of the row.
Floats largest_of(int64_t block, Floats values, int64_t columns) {
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(columns))
    for (int64_t begin = 0; begin < columns; begin += block) {
      const std::span some = std::span(values).subspan(row + static_cast<size_t>(begin),
                                                       static_cast<size_t>(std::min(block, columns - begin)));
      float largest = 0;
      for (float value : some) largest = std::max(largest, std::fabs(value));
      std::fill(some.begin(), some.end(), largest);
    }
  return values;
}

struct Case {
  DType dtype;
  int64_t rows, out, in;
  bool bias = false, accumulate = false;
  int64_t gap = 0;
};

Floats run(Device& device, const Case& c, const Floats& x, const Floats& w) {
  MatmulArgs args;
  args.x = device.make({c.rows, c.in}, x, DType::kF32, c.gap);
  args.w = device.make({c.out, c.in}, w, c.dtype);
  if (c.bias) args.bias = device.make({c.out}, random_floats(static_cast<size_t>(c.out), 3));
  args.y = device.make({c.rows, c.out}, random_floats(static_cast<size_t>(c.rows * c.out), 4), DType::kF32, c.gap);
  args.accumulate = c.accumulate;
  args.phase = device.phase();
  device->matmul(args);
  EXPECT_TRUE(device.gaps_intact(args.y, c.gap));
  return device.read(args.y);
}

// Rows with a single 1 read the weights that a target multiplies with.
Floats read_weights(Device& device, const Case& c, const Floats& w) {
  Floats x(static_cast<size_t>(c.in * c.in));
  for (int64_t k = 0; k < c.in; ++k) x[static_cast<size_t>(k * c.in + k)] = 1;
  const Floats columns = run(device, {c.dtype, c.in, c.out, c.in}, x, w);
  Floats weights(w.size());
  for (int64_t n = 0; n < c.out; ++n)
    for (int64_t k = 0; k < c.in; ++k)
      weights[static_cast<size_t>(n * c.in + k)] = columns[static_cast<size_t>(k * c.out + n)];
  return weights;
}

// Targets that round operands are compared with exact products of what they round to. Codes of weights that are
// multiplied with 8 bits are not negative: what is subtracted again may be as large as the largest of 32 weights.
void compare(Device& tested, Device& reference, const Case& c) {
  SCOPED_TRACE(testing::Message() << dtype_name(c.dtype) << " [" << c.rows << ", " << c.in << "] x [" << c.out << ", "
                                  << c.in << "]");
  const Floats x = random_floats(static_cast<size_t>(c.rows * c.in), 1);
  const Floats w = random_floats(static_cast<size_t>(c.out * c.in), 2, 0.1f);
  const Floats got = run(tested, c, x, w);
  Floats weights = stored(c.dtype, w, c.in), want;
  const Rounding rounding = rounding_of(tested, c.dtype);
  Case plain = c;
  plain.dtype = DType::kF32;
  if (rounding == Rounding::kBf16) {
    weights = rounded_to_bf16(weights);
    want = run(reference, plain, rounded_to_bf16(x), weights);
  } else if (rounding == Rounding::kEightBits) {
    want = run(reference, plain, rounded_to_8_bits(x, c.in, 32), weights);
    weights = largest_of(32, weights, c.in);
  } else if (rounding == Rounding::kTileBits) {  // how far the weights may be off, WeightsExpandExactly says
    weights = read_weights(tested, c, w);
    want = run(reference, plain, rounded_to_8_bits(x, c.in, 256), weights);
  } else {
    want = run(reference, c, x, w);
  }
  for (int64_t m = 0; m < c.rows; ++m) {
    for (int64_t n = 0; n < c.out; ++n) {
      float magnitude = 1e-6f;
      for (int64_t k = 0; k < c.in; ++k)
        magnitude += std::fabs(x[static_cast<size_t>(m * c.in + k)] * weights[static_cast<size_t>(n * c.in + k)]);
      const auto i = static_cast<size_t>(m * c.out + n);
      ASSERT_LE(std::fabs(got[i] - want[i]), kTolerance * (magnitude + std::fabs(want[i])))
          << "row " << m << " column " << n;
    }
  }
}

class MatmulTest : public InEveryWay {};
INSTANTIATE_TEST_SUITE_P(Ways, MatmulTest, every_way(), way_name);

TEST_P(MatmulTest, AgreesWithReferenceForEveryWeightType) {
  Device tested(GetParam()), reference("reference");
  for (DType dtype : weight_types(*tested)) {
    const int64_t block = dtype_info(dtype).block_elements;
    for (int64_t rows : {1, 2, 7, 17})
      for (int64_t in : {block, 3 * block, 1280 / block * block}) compare(tested, reference, {dtype, rows, 13, in});
  }
}

TEST_P(MatmulTest, AgreesWithReferenceForEveryRowCount) {
  Device tested(GetParam()), reference("reference");
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0})
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33}) compare(tested, reference, {dtype, rows, 70, 96});
}

TEST_P(MatmulTest, AgreesWithReferenceForRowsThatAreNoWholeVectors) {
  Device tested(GetParam()), reference("reference");
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (int64_t in : {1, 3, 15, 17, 31, 33, 100})
      for (int64_t rows : {1, 5, 40}) compare(tested, reference, {dtype, rows, 9, in});
}

// Whole and partial tiles of 16, panels of 64 and their tasks.
TEST_P(MatmulTest, AgreesWithReferenceForEveryShapeOfOutputs) {
  Device tested(GetParam()), reference("reference");
  for (DType dtype : {DType::kBF16, DType::kQ4_0})
    for (int64_t out : {1, 15, 16, 17, 33, 64, 130, 600})
      for (int64_t rows : {1, 16, 17, 40}) compare(tested, reference, {dtype, rows, out, 96});
}

// Rounding both factors of each term to bf16 costs at most 2^-8 of it; random errors add up to far less. Rounding x to
// 8 bits costs at most half of 1/127 of the largest of 32 per term: a deviation of 0.0052, 1.2e-4 of the length here.
// Rounding both per 256, where the largest is about three times the spread: 0.0095, 2.1e-4.
TEST_P(MatmulTest, RoundingStaysInBounds) {
  Device tested(GetParam()), reference("reference");
  for (DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const Case c{dtype, 20, 30, 2048};
    const Floats x = random_floats(static_cast<size_t>(c.rows * c.in), 1);
    const Floats w = random_floats(static_cast<size_t>(c.out * c.in), 2);
    const Floats got = run(tested, c, x, w), want = run(reference, c, x, w);
    const auto length = static_cast<float>(c.in);  // |x| |w| of a row and a column, both of spread 1
    const float bound = rounding_of(tested, dtype) == Rounding::kTileBits ? 1e-3f : 6e-4f;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::fabs(got[i] - want[i]), bound * length) << dtype_name(dtype) << " " << i;
  }
}

TEST_P(MatmulTest, LongRowsAreSummedInTheSameOrderByFewAndManyRows) {
  Device tested(GetParam()), reference("reference");
  for (const auto& [dtype, in] : {std::pair<DType, int64_t>{DType::kF32, 3001},
                                  {DType::kBF16, 1025},
                                  {DType::kQ8_0, 2080},
                                  {DType::kQ2_K, 2304},
                                  {DType::kQ6_K, 2048}}) {
    SCOPED_TRACE(dtype_name(dtype));
    const int64_t rows = 200, out = 6;
    compare(tested, reference, {dtype, rows, out, in});
    const Floats x = random_floats(static_cast<size_t>(rows * in), 1),
                 w = random_floats(static_cast<size_t>(out * in), 2);
    const Floats all = run(tested, {dtype, rows, out, in}, x, w);
    for (int64_t row : {0, 100, 199})
      expect_same(run(tested, {dtype, 1, out, in}, pick_rows(x, in, {row}), w), pick_rows(all, out, {row}));
  }
}

TEST_P(MatmulTest, AddsBiasAndAccumulatesIntoStridedViews) {
  Device tested(GetParam()), reference("reference");
  for (int64_t rows : {1, 3, 19})
    for (bool bias : {false, true})
      for (bool accumulate : {false, true})
        for (int64_t gap : {0, 5}) compare(tested, reference, {DType::kF16, rows, 11, 37, bias, accumulate, gap});
}

TEST_P(MatmulTest, EmptyShapesDoNothing) {
  Device tested(GetParam());
  EXPECT_TRUE(run(tested, {DType::kF32, 0, 4, 8}, {}, random_floats(32, 1)).empty());
}

// A row with a single 1 reads a column of the weights: expansion in registers and in panels must equal dequantize(), or
// be about half a step from it.
TEST_P(MatmulTest, WeightsExpandExactly) {
  Device tested(GetParam());
  for (DType dtype : weight_types(*tested)) {
    SCOPED_TRACE(dtype_name(dtype));
    const int64_t in = std::max(2 * dtype_info(dtype).block_elements, 64), out = 5;
    Floats w = random_floats(static_cast<size_t>(out * in), 6, 0.3f);
    for (int64_t k = 0; k < in; ++k) w[static_cast<size_t>(k)] *= 1e-5f;  // scales below the normal range of f16
    Floats weights = stored(dtype, w, in);
    const Rounding rounding = rounding_of(tested, dtype);
    if (rounding == Rounding::kBf16) weights = rounded_to_bf16(weights);
    const Floats largest = largest_of(rounding == Rounding::kTileBits ? 256 : 32, weights, in);
    // A code of 127, scaled by a rounded 1/127, is 1 up to rounding.
    auto expect_weight = [&](float got, size_t i) {
      if (rounding == Rounding::kEightBits)
        ASSERT_NEAR(got, weights[i], 1e-6f * largest[i]) << "weight " << i;
      else if (rounding == Rounding::kTileBits)  // of the largest that codes could be, used or not
        ASSERT_NEAR(got, weights[i], 0.55f * 1.6f * largest[i] / 127) << "weight " << i;
      else
        ASSERT_EQ(got, weights[i]) << "weight " << i;
    };
    for (int64_t rows : {int64_t{1}, in}) {
      for (int64_t first = 0; first < in; first += rows) {
        Floats x(static_cast<size_t>(rows * in));
        for (int64_t m = 0; m < rows; ++m) x[static_cast<size_t>(m * in + first + m)] = 1;
        const Floats y = run(tested, {dtype, rows, out, in}, x, w);
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t n = 0; n < out; ++n)
            expect_weight(y[static_cast<size_t>(m * out + n)], static_cast<size_t>(n * in + first + m));
      }
    }
  }
}

TEST_P(MatmulTest, RowsDoNotDependOnTheirNeighbours) {
  Device tested(GetParam());
  for (DType dtype : weight_types(*tested)) {
    SCOPED_TRACE(dtype_name(dtype));
    const int64_t block = dtype_info(dtype).block_elements, rows = 41, out = 70;
    const int64_t in = block == 1 ? 100 : std::max<int64_t>(block, 128);
    const Floats x = random_floats(static_cast<size_t>(rows * in), 7);
    const Floats w = random_floats(static_cast<size_t>(out * in), 8);
    const Floats all = run(tested, {dtype, rows, out, in}, x, w);
    for (int64_t row : {0, 5, 6, 40})
      expect_same(run(tested, {dtype, 1, out, in}, pick_rows(x, in, {row}), w), pick_rows(all, out, {row}));
    for (const std::vector<int64_t>& rows_of_call : {std::vector<int64_t>{3, 2},
                                                     {9, 8, 7, 40},
                                                     {1, 2, 3, 4, 5, 6, 7},
                                                     {30, 1, 29, 2, 28, 3, 27, 4, 26, 5, 25, 6, 0}})
      expect_same(
          run(tested, {dtype, static_cast<int64_t>(rows_of_call.size()), out, in}, pick_rows(x, in, rows_of_call), w),
          pick_rows(all, out, rows_of_call));
  }
}

// More rows of x than a task has, several parts of K of which the last is short, panels that are not whole; threads.
TEST_P(MatmulTest, LargePlainProductsAreRowByRow) {
  Device one(GetParam(), 1), three(GetParam(), 3);
  const int64_t in = 4496, rows = 800, out = 70;
  const Floats x = random_floats(static_cast<size_t>(rows * in), 11);
  const Floats w = random_floats(static_cast<size_t>(out * in), 12);
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Floats all = run(three, {dtype, rows, out, in}, x, w);
    for (int64_t row : {0, 383, 384, 767, 768, 799})
      expect_same(run(one, {dtype, 1, out, in}, pick_rows(x, in, {row}), w), pick_rows(all, out, {row}));
  }
}

// Outputs that caches cannot hold, and tasks of which one has 16 weight rows, wherever the stack begins.
TEST_P(MatmulTest, LargeOutputsOfAnyTask) {
  Device one(GetParam(), 1), two(GetParam(), 2);
  const int64_t in = 32, out = 16400, rows = 65;
  const Floats x = random_floats(static_cast<size_t>(rows * in), 13);
  const Floats w = random_floats(static_cast<size_t>(out * in), 14);
  for (DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kBF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Floats last = run(one, {dtype, 1, out, in}, pick_rows(x, in, {rows - 1}), w);
    for (size_t deeper = 0; deeper < 64; deeper += 16) {
      *static_cast<volatile char*>(__builtin_alloca(deeper + 16)) = 0;
      expect_same(pick_rows(run(two, {dtype, rows, out, in}, x, w), out, {rows - 1}), last);
    }
  }
}

// A token that is lost is lost alone, and says so.
TEST_P(MatmulTest, NumbersThatAreNotFiniteAreLost) {
  Device tested(GetParam());
  const int64_t rows = 50, out = 40, in = 512;
  const Floats w = random_floats(static_cast<size_t>(out * in), 16);
  for (float lost : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                     std::numeric_limits<float>::quiet_NaN()}) {
    Floats x = random_floats(static_cast<size_t>(rows * in), 15);
    for (DType dtype : weight_types(*tested)) {
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << lost);
      const Floats well = run(tested, {dtype, rows, out, in}, x, w);
      const float before = std::exchange(x[static_cast<size_t>(in + 300)], lost);
      const Floats got = run(tested, {dtype, rows, out, in}, x, w);
      x[static_cast<size_t>(in + 300)] = before;
      for (float value : pick_rows(got, out, {1})) ASSERT_FALSE(std::isfinite(value));
      for (int64_t row : {0, 2, 49}) expect_same(pick_rows(got, out, {row}), pick_rows(well, out, {row}));
    }
  }
}

TEST_P(MatmulTest, OutputsDoNotDependOnTheirNeighbours) {
  Device tested(GetParam());
  const int64_t in = 256, rows = 20, out = 70;
  const Floats x = random_floats(static_cast<size_t>(rows * in), 7),
               w = random_floats(static_cast<size_t>(out * in), 8);
  for (DType dtype : weight_types(*tested)) {
    const Floats all = run(tested, {dtype, rows, out, in}, x, w);
    for (int64_t column : {0, 1, 33, 69}) {
      const Floats one = run(tested, {dtype, rows, 1, in}, x, pick_rows(w, in, {column}));
      for (int64_t m = 0; m < rows; ++m)
        ASSERT_EQ(one[static_cast<size_t>(m)], all[static_cast<size_t>(m * out + column)]);
    }
  }
}

TEST_P(MatmulTest, ThreadsDoNotChangeBits) {
  Device one(GetParam(), 1), two(GetParam(), 2), five(GetParam(), 5);
  for (DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ4_K})
    for (int64_t rows : {1, 8, 16, 300}) {
      const Case c{dtype, rows, 150, 256};
      const Floats x = random_floats(static_cast<size_t>(rows * c.in), 9);
      const Floats w = random_floats(static_cast<size_t>(c.out * c.in), 10);
      const Floats want = run(one, c, x, w);
      expect_same(run(two, c, x, w), want);
      expect_same(run(five, c, x, w), want);
    }
}

}  // namespace
}  // namespace godwit::test
