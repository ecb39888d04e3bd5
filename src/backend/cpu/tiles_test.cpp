#include "backend/cpu/tiles.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/features.h"
#include "tensor/half.h"

namespace godwit::cpu {
namespace {

// One C of m x n over k values in A and B, which C accumulates twice.
struct Shape {
  int m, n, k;
};

uint16_t random_bf16(std::mt19937& generator) {
  return float_to_bf16(std::normal_distribution<float>()(generator));
}

template <class Tiles>
std::vector<float> run(const Shape& shape, const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  TileShapes shapes;
  shapes[0] = {shape.m, 4 * shape.n};
  shapes[3] = {shape.m, 2 * shape.k};
  shapes[7] = {shape.k / 2, 4 * shape.n};
  std::vector<float> c(static_cast<size_t>(shape.m * shape.n), 1.0F);
  Tiles tiles(shapes);
  tiles.template load<0>(c.data(), 4 * static_cast<size_t>(shape.n));
  tiles.template load<3>(a.data(), 2 * static_cast<size_t>(shape.k));
  tiles.template load<7>(b.data(), 4 * static_cast<size_t>(shape.n));
  tiles.template dot_bf16<0, 3, 7>();
  tiles.template dot_bf16<0, 3, 7>();
  tiles.template store<0>(c.data(), 4 * static_cast<size_t>(shape.n));
  return c;
}

template <class Tiles>
void agrees_with_double(const Shape& shape) {
  std::mt19937 generator(1);
  std::vector<uint16_t> a(static_cast<size_t>(shape.m * shape.k)), b(static_cast<size_t>(shape.n * shape.k));
  for (uint16_t& value : a) value = random_bf16(generator);
  for (uint16_t& value : b) value = random_bf16(generator);
  const std::vector<float> c = run<Tiles>(shape, a, b);
  for (int m = 0; m < shape.m; ++m) {
    for (int n = 0; n < shape.n; ++n) {
      double sum = 1, magnitude = 1;
      for (int k = 0; k < shape.k; ++k) {
        const double product = static_cast<double>(bf16_to_float(a[static_cast<size_t>(m * shape.k + k)])) *
                               bf16_to_float(b[static_cast<size_t>(k / 2 * 2 * shape.n + 2 * n + k % 2)]);
        sum += 2 * product;
        magnitude += 2 * std::fabs(product);
      }
      ASSERT_NEAR(c[static_cast<size_t>(m * shape.n + n)], sum, 1e-6 * magnitude) << m << " " << n;
    }
  }
}

const Shape kShapes[] = {{16, 16, 32}, {16, 1, 32}, {1, 16, 32}, {5, 3, 8}};

TEST(EmulatedTiles, MultiplyMatrices) {
  for (const Shape& shape : kShapes) agrees_with_double<EmulatedTiles>(shape);
}

template <class Tiles>
std::vector<int32_t> run_int8(const Shape& shape, const std::vector<int8_t>& a, const std::vector<int8_t>& b) {
  TileShapes shapes;
  shapes[1] = {shape.m, 4 * shape.n};
  shapes[2] = {shape.m, shape.k};
  shapes[6] = {shape.k / 4, 4 * shape.n};
  std::vector<int32_t> c(static_cast<size_t>(shape.m * shape.n), 5);
  Tiles tiles(shapes);
  tiles.template load<1>(c.data(), 4 * static_cast<size_t>(shape.n));
  tiles.template load<2>(a.data(), static_cast<size_t>(shape.k));
  tiles.template load<6>(b.data(), 4 * static_cast<size_t>(shape.n));
  tiles.template dot_int8<1, 2, 6>();
  tiles.template dot_int8<1, 2, 6>();
  tiles.template store<1>(c.data(), 4 * static_cast<size_t>(shape.n));
  return c;
}

template <class Tiles>
void multiplies_whole_numbers() {
  std::mt19937 generator(3);
  for (const Shape& shape : {Shape{16, 16, 64}, Shape{16, 1, 64}, Shape{1, 16, 64}, Shape{5, 3, 8}}) {
    std::vector<int8_t> a(static_cast<size_t>(shape.m * shape.k)), b(static_cast<size_t>(shape.n * shape.k));
    for (int8_t& value : a) value = static_cast<int8_t>(generator());
    for (int8_t& value : b) value = static_cast<int8_t>(generator());
    const std::vector<int32_t> c = run_int8<Tiles>(shape, a, b);
    for (int m = 0; m < shape.m; ++m)
      for (int n = 0; n < shape.n; ++n) {
        int sum = 5;
        for (int k = 0; k < shape.k; ++k)
          sum +=
              2 * a[static_cast<size_t>(m * shape.k + k)] * b[static_cast<size_t>(k / 4 * 4 * shape.n + 4 * n + k % 4)];
        ASSERT_EQ(c[static_cast<size_t>(m * shape.n + n)], sum) << m << " " << n;
      }
  }
}

TEST(EmulatedTiles, MultiplyWholeNumbers) {
  multiplies_whole_numbers<EmulatedTiles>();
}

TEST(AmxTiles, MultiplyWholeNumbers) {
  if (!has_amx()) GTEST_SKIP() << "no tile unit";
  multiplies_whole_numbers<AmxTiles>();
}

TEST(EmulatedTiles, RoundAsTheManualSays) {
  const uint16_t big = float_to_bf16(0x1p24F), one = float_to_bf16(1), tiny = 1;
  // Even terms 2^24 and 1 lose the 1, odd terms 1 and 1 make 2, so 2^24 + 2 is added to 1, twice. Term by term the
  // small ones would all be lost.
  EXPECT_EQ(run<EmulatedTiles>({1, 1, 4}, {big, one, one, one}, {one, one, one, one})[0], 0x1p25F + 8);
  // A subnormal number counts as zero even times 2^127.
  EXPECT_EQ(run<EmulatedTiles>({1, 1, 2}, {tiny, one}, {float_to_bf16(0x1p127F), one})[0], 3);
}

TEST(EmulatedTilesDeathTest, ShapesMustFit) {
  TileShapes shapes;
  shapes[0] = {16, 64};
  shapes[1] = {16, 64};
  shapes[2] = {8, 64};  // half of A's columns
  EmulatedTiles tiles(shapes);
  EXPECT_DEATH((tiles.dot_bf16<0, 1, 2>()), "");
  EXPECT_DEATH(tiles.zero<3>(), "");
}

TEST(AmxTiles, MultiplyMatricesAsTheEmulationDoes) {
  if (!has_amx()) GTEST_SKIP() << "no tile unit";
  std::mt19937 generator(2);
  for (const Shape& shape : kShapes) {
    agrees_with_double<AmxTiles>(shape);
    std::vector<uint16_t> a(static_cast<size_t>(shape.m * shape.k)), b(static_cast<size_t>(shape.n * shape.k));
    for (uint16_t& value : a) value = random_bf16(generator);
    for (uint16_t& value : b) value = random_bf16(generator);
    EXPECT_EQ(run<AmxTiles>(shape, a, b), run<EmulatedTiles>(shape, a, b));
  }
}

}  // namespace
}  // namespace godwit::cpu
