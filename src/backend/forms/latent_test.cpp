// What LatentForm promises, on its scalar reference.
#include "backend/forms/latent.h"

#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tensor/half.h"

namespace godwit {
namespace {

constexpr size_t kDims = 64, kTokens = 64;
using Line = std::vector<float>;

float as_f16(float x) {
  return f16_to_float(float_to_f16(x));
}

Line draw(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Line numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

// Two tables of K and V: orthonormal rows, by Gram and Schmidt from random ones.
Line draw_bases() {
  Line bases = draw(4 * kDims * kDims, 1);
  for (size_t row = 0; row < 4 * kDims; ++row) {
    float* a = &bases[row * kDims];
    for (int twice = 0; twice < 2; ++twice)
      for (size_t before = row / kDims * kDims; before < row; ++before) {
        const double dot = std::inner_product(a, a + kDims, &bases[before * kDims], 0.0);
        for (size_t d = 0; d < kDims; ++d) a[d] -= static_cast<float>(dot * bases[before * kDims + d]);
      }
    const double length = std::sqrt(std::inner_product(a, a + kDims, a, 0.0));
    for (size_t d = 0; d < kDims; ++d) a[d] = static_cast<float>(a[d] / length);
  }
  return bases;
}

LatentRope rope(bool pairs = false, size_t rotary_dim = kDims) {
  LatentRope made{pairs, rotary_dim, {}};
  for (size_t table = 0; table < 2; ++table)
    for (size_t i = 0; i < rotary_dim / 2; ++i)
      made.speed.push_back(
          std::pow(table == 0 ? 10000.0f : 500.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rotary_dim)));
  return made;
}

LatentForm make_form(const LatentOptions& options, const LatentRope& turned = rope()) {
  return {kDims, options, turned, draw_bases()};
}
constexpr LatentOptions kNeutral = {.k_bits = 16, .v_bits = 16, .strong = kDims};

std::vector<int32_t> count_from(int32_t first) {
  std::vector<int32_t> positions(kTokens);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

struct Page {
  Line k, v;  // [dims, tokens], [tokens, dims]
};

Page draw_page(uint32_t seed) {
  Page page{draw(kDims * kTokens, seed), draw(kDims * kTokens, seed + 1)};
  for (Line* half : {&page.k, &page.v})
    for (float& x : *half) x = as_f16(x);
  return page;
}

// Keys that are sums of the first `rank` vectors of table 0 before RoPE turns them.
Page low_rank(size_t rank, const std::vector<int32_t>& positions) {
  Page page = draw_page(7);
  const Line bases = draw_bases(), weights = draw(rank * kTokens, 8);
  const LatentRope turned = rope();
  for (size_t t = 0; t < kTokens; ++t) {
    std::vector<double> key(kDims);
    for (size_t i = 0; i < rank; ++i)
      for (size_t d = 0; d < kDims; ++d) key[d] += double{weights[i * kTokens + t]} * bases[i * kDims + d];
    for (size_t f = 0; f < kDims / 2; ++f) {
      const double angle = double{turned.speed[f]} * positions[t], x = key[f], y = key[f + kDims / 2];
      page.k[f * kTokens + t] = as_f16(static_cast<float>(x * std::cos(angle) - y * std::sin(angle)));
      page.k[(f + kDims / 2) * kTokens + t] = as_f16(static_cast<float>(y * std::cos(angle) + x * std::sin(angle)));
    }
  }
  return page;
}

struct Sealed {
  Sealed(const LatentForm& form, const Page& page, const std::vector<int32_t>& positions, uint32_t table = 0)
      : bytes(form.k_bytes() + form.v_bytes()), read(page) {
    Page work = page;
    form.seal({table, positions.data()}, work.k.data(), work.v.data(), bytes.data());
    for (size_t t = 0; t < kTokens; ++t)
      for (size_t d = 0; d < kDims; ++d) {
        read.k[d * kTokens + t] = form.key(bytes.data(), t, d);
        read.v[t * kDims + d] = form.value(bytes.data(), t, d);
      }
    Page whole = page;
    form.read(bytes.data(), whole.k.data(), whole.v.data());
    for (size_t i = 0; i < whole.k.size(); ++i) {
      EXPECT_NEAR(whole.k[i], read.k[i], 1e-4);
      EXPECT_NEAR(whole.v[i], read.v[i], 1e-4);
    }
  }
  std::vector<std::byte> bytes;
  Page read;
};

// Distances of a token's key and value from what is read.
double key_error(const Page& a, const Page& b, size_t t) {
  double sum = 0;
  for (size_t d = 0; d < kDims; ++d) sum += std::pow(double{a.k[d * kTokens + t]} - b.k[d * kTokens + t], 2);
  return std::sqrt(sum);
}
double value_error(const Page& a, const Page& b, size_t t) {
  double sum = 0;
  for (size_t d = 0; d < kDims; ++d) sum += std::pow(double{a.v[t * kDims + d]} - b.v[t * kDims + d], 2);
  return std::sqrt(sum);
}

TEST(LatentForm, NumbersOfAllCoordinatesAreThePageAgain) {
  std::vector<int32_t> scattered = count_from(100);
  for (size_t t = 0; t < kTokens; ++t) scattered[t] += static_cast<int32_t>(t * t);
  for (const LatentRope& turned : {rope(), rope(true), rope(false, 32), rope(true, 32)})
    for (const auto& positions : {count_from(0), count_from(123457), scattered}) {
      const LatentForm form = make_form(kNeutral, turned);
      for (uint32_t table : {0u, 1u}) {
        const Page page = draw_page(3);
        const Sealed sealed(form, page, positions, table);
        for (size_t t = 0; t < kTokens; ++t) {
          EXPECT_LT(key_error(page, sealed.read, t), 1e-2);  // of lengths of 8
          EXPECT_LT(value_error(page, sealed.read, t), 1e-2);
        }
      }
    }
}

TEST(LatentForm, ErrorsAreThoseOfCoordinates) {
  const Line bases = draw_bases();
  for (const LatentOptions& options :
       {LatentOptions{4, 4, 32, 2}, LatentOptions{2, 8, 16, 4}, LatentOptions{8, 16, 48, 0}}) {
    const LatentForm form = make_form(options);
    const Page page = draw_page(4);
    const Sealed sealed(form, page, count_from(1000));
    const auto codes = [&](const LatentHalf& half, const std::byte* bytes) {
      double sum = 0;
      for (size_t i = half.first_coded(); i < half.kept; ++i)
        sum += std::pow(f16_to_float(half.scale(bytes)[i]) / 2, 2);
      return std::sqrt(sum);
    };
    const double k_codes = codes(form.keys(), form.key_half(sealed.bytes.data()));
    const double v_codes = codes(form.values(), form.value_half(sealed.bytes.data()));
    for (size_t t = 0; t < kTokens; ++t) {
      double left_out = 0, length = 0;
      for (size_t i = 0; i < kDims; ++i) {
        const float* vector = &bases[(kDims + i) * kDims];
        const double x = std::inner_product(vector, vector + kDims, &page.v[t * kDims], 0.0);
        if (i >= form.values().kept) left_out += x * x;
        length += std::pow(double{page.k[i * kTokens + t]}, 2);
      }
      EXPECT_LE(value_error(page, sealed.read, t), std::sqrt(v_codes * v_codes + left_out) + 1e-2);
      // Of keys, what is left out is no more than there is.
      EXPECT_LE(key_error(page, sealed.read, t), k_codes + (options.weak_bits == 0 ? std::sqrt(length) : 0) + 1e-2);
    }
  }
}

TEST(LatentForm, KeysAreTurnedBackByTheirPositions) {
  const LatentForm form = make_form({.k_bits = 16, .v_bits = 16, .strong = 8, .weak_bits = 0});
  const auto right = count_from(70000);
  const Page page = low_rank(8, right);
  auto wrong = right;
  for (size_t t = 32; t < kTokens; ++t) wrong[t] += 3;
  const Sealed well(form, page, right), badly(form, page, wrong);
  for (size_t t = 0; t < kTokens; ++t) {
    EXPECT_LT(key_error(page, well.read, t), 1e-2) << t;
    EXPECT_EQ(key_error(page, badly.read, t) > 0.1, t >= 32) << t;
  }
}

TEST(LatentForm, AWideGapCostsSomeTokensTheirCoordinatesAndNothingElse) {
  auto positions = count_from(0);
  for (size_t t = 32; t < kTokens; ++t) positions[t] += 5000;  // 20 steps of 255 to go
  const Page page = low_rank(8, positions);
  const Sealed few(make_form({.k_bits = 16, .v_bits = 16, .strong = 8, .weak_bits = 0}), page, positions);
  for (size_t t = 0; t < kTokens; ++t) EXPECT_EQ(key_error(page, few.read, t) < 1e-2, t < 32 || t >= 51) << t;
  const Sealed all(make_form(kNeutral), page, positions);
  for (size_t t = 0; t < kTokens; ++t) EXPECT_LT(key_error(page, all.read, t), 1e-2) << t;
}

TEST(LatentForm, BytesAreWhatTheOptionsSay) {
  // The page's head; a position and steps; scales and middles; codes.
  EXPECT_EQ(make_form({4, 4, 32, 2}).k_bytes(), 12u + 68 + 64 * 4 + 32 * 32 + 32 * 16);
  EXPECT_EQ(make_form({4, 4, 32, 2}).v_bytes(), 64u * 4 + 32 * 32 + 32 * 16);
  EXPECT_EQ(make_form({8, 2, 16, 0}).k_bytes(), 12u + 68 + 16 * 4 + 16 * 64);
  EXPECT_EQ(make_form({8, 2, 16, 0}).v_bytes(), 16u * 4 + 16 * 16);
  EXPECT_EQ(make_form(kNeutral).v_bytes(), 64u * 128);
  EXPECT_EQ(make_form({16, 16, 16, 4}).v_bytes(), 48u * 4 + 16 * 128 + 48 * 32);
}

}  // namespace
}  // namespace godwit
