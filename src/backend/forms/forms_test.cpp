// What each form of sealed pages promises, on its scalar reference.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/forms/gear.h"
#include "backend/forms/product.h"
#include "backend/forms/sorted.h"
#include "backend/forms/thin.h"
#include "backend/kv_codes.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr size_t kDims = 64, kTokens = 64;

struct Page {
  std::vector<float> k, v;  // [dims, tokens], [tokens, dims]
};

float as_f16(float x) {
  return f16_to_float(float_to_f16(x));
}

Page draw(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Page page{std::vector<float>(kDims * kTokens), std::vector<float>(kDims * kTokens)};
  for (auto* half : {&page.k, &page.v})
    for (float& x : *half) x = as_f16(normal(random));
  return page;
}

Page through(const PageForm& form, const Page& page, uint32_t table = 0, std::vector<int32_t> positions = {}) {
  std::vector<std::byte> bytes(form.k_bytes() + form.v_bytes());
  Page work = page, read = page;
  if (positions.empty()) {
    positions.resize(kTokens);
    std::iota(positions.begin(), positions.end(), 1000);
  }
  form.seal({table, positions.data()}, work.k.data(), work.v.data(), bytes.data());
  for (size_t token = 0; token < kTokens; ++token)
    for (size_t dim = 0; dim < kDims; ++dim) {
      read.k[dim * kTokens + token] = form.key(bytes.data(), token, dim);
      read.v[token * kDims + dim] = form.value(bytes.data(), token, dim);
    }
  return read;
}

double square_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

// A channel in four is 40 times as large as the others.
Page with_outliers(uint32_t seed) {
  Page page = draw(seed);
  for (size_t dim = 0; dim < kDims; dim += 4)
    for (size_t token = 0; token < kTokens; ++token) page.k[dim * kTokens + token] *= 40;
  return page;
}

TEST(SortedForm, ErrorsAreWithinHalfOfABlocksPowerOfTwo) {
  for (int bits : {4, 8}) {
    const Page page = with_outliers(1);
    const Page read = through(SortedForm(kDims, kTokens, {.k_bits = bits, .v_bits = bits, .sorts = false}), page);
    const float share = bits == 4 ? 1 / 7.5f : 1 / 127.5f;  // a power is less than twice what the largest asks for
    for (size_t token = 0; token < kTokens; ++token)
      for (size_t block = 0; block < kDims; block += 16) {
        float k_most = 0, v_most = 0;
        for (size_t dim = block; dim < block + 16; ++dim) {
          k_most = std::max(k_most, std::abs(page.k[dim * kTokens + token]));
          v_most = std::max(v_most, std::abs(page.v[token * kDims + dim]));
        }
        for (size_t dim = block; dim < block + 16; ++dim) {
          EXPECT_LE(std::abs(read.k[dim * kTokens + token] - page.k[dim * kTokens + token]), k_most * share);
          EXPECT_LE(std::abs(read.v[token * kDims + dim] - page.v[token * kDims + dim]), v_most * share);
        }
      }
  }
}

TEST(SortedForm, SortingHelpsWhereThereAreOutliersAndElseChangesLittle) {
  const SortedForm sorted(kDims, kTokens, {}), plain(kDims, kTokens, {.sorts = false});
  auto error = [](const PageForm& form, Page page) {
    Page read = through(form, page);
    for (size_t dim = 0; dim < kDims; dim += 4)  // of the channels that are not large
      for (size_t token = 0; token < kTokens; ++token) read.k[dim * kTokens + token] = page.k[dim * kTokens + token];
    return square_error(read.k, page.k);
  };
  EXPECT_LT(error(sorted, with_outliers(2)), 0.02 * error(plain, with_outliers(2)));
  EXPECT_NEAR(error(sorted, draw(3)) / error(plain, draw(3)), 1, 0.15);
}

TEST(SortedForm, ExtremeNumbersStayInRange) {
  Page page = draw(4);
  page.k[5] = INFINITY, page.k[6] = -65504, page.v[7] = -INFINITY, page.v[8] = 6e-8f;
  std::fill_n(page.k.begin() + 20 * kTokens, 5 * kTokens, 0.0f);
  for (int bits : {4, 8}) {
    const Page read = through(SortedForm(kDims, kTokens, {.k_bits = bits, .v_bits = bits}), page);
    EXPECT_NEAR(read.k[5], kF16Max, kF16Max / 8);
    EXPECT_NEAR(read.v[7], -kF16Max, kF16Max / 8);
    for (size_t i = 20 * kTokens; i < 25 * kTokens; ++i) EXPECT_EQ(read.k[i], 0);
    for (float x : read.k) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(ThinForm, KeepsWhatMattersMostAsItIs) {
  Page page = draw(5);
  for (size_t dim = 0; dim < kDims; ++dim)
    for (size_t token = 0; token < kTokens; ++token)
      page.k[dim * kTokens + token] = std::copysign(1 + static_cast<float>(dim), page.k[dim * kTokens + token]);
  const Page all = through(ThinForm(kDims, kTokens, kDims, {}), page);
  EXPECT_EQ(all.k, page.k);
  EXPECT_EQ(all.v, page.v);
  Page want = page;
  std::fill_n(want.k.begin(), 24 * kTokens, 0.0f);
  const Page thin = through(ThinForm(kDims, kTokens, 40, {}), page);
  EXPECT_EQ(thin.k, want.k);
  EXPECT_EQ(thin.v, page.v);
  // Queries that look at the small channels alone, in the second of two tables.
  std::vector<float> weights(2 * kDims, 1.0f);
  std::fill_n(weights.begin() + kDims + 24, 40, 0.0f);
  const ThinForm weighted(kDims, kTokens, 24, weights);
  want = page;
  std::fill_n(want.k.begin() + 24 * kTokens, 40 * kTokens, 0.0f);
  EXPECT_EQ(through(weighted, page, 1).k, want.k);
  EXPECT_NE(through(weighted, page, 0).k, want.k);
}

TEST(ThinForm, AScoreIsOffByNoMoreThanWhatWasDropped) {
  const Page page = draw(6), queries = draw(7), thin = through(ThinForm(kDims, kTokens, 40, {}), page);
  for (size_t token = 0; token < kTokens; ++token) {
    double off = 0, q = 0, k = 0;
    for (size_t dim = 0; dim < kDims; ++dim) {
      const double missing = page.k[dim * kTokens + token] - thin.k[dim * kTokens + token];
      const double x = queries.v[token * kDims + dim];
      off += x * missing;
      if (missing != 0) q += x * x, k += missing * missing;
    }
    EXPECT_LE(std::abs(off), std::sqrt(q * k) + 1e-9);
  }
}

// Numbers that are the sum of two products and of noise.
Page low_rank(uint32_t seed, float noise) {
  Page page = draw(seed);
  const Page factors = draw(seed + 1);
  for (size_t i = 0; i < kDims; ++i)
    for (size_t j = 0; j < kTokens; ++j)
      for (auto* half : {&page.k, &page.v}) {
        float& x = (*half)[i * kTokens + j];
        x = as_f16(noise * x + factors.k[i] * factors.k[100 + j] + factors.v[i] * factors.v[100 + j]);
      }
  return page;
}

TEST(GearForm, ErrorsFallWithTheRankAndAreNeverAboveTheCodes) {
  for (int bits : {2, 4})
    for (float noise : {0.02f, 1.0f}) {
      const Page page = low_rank(8, noise);
      double k_before = INFINITY, v_before = INFINITY;
      for (size_t rank : {0, 1, 2, 4, 8}) {
        const GearForm form(kDims, kTokens, {.k_bits = bits, .v_bits = bits, .rank = rank, .extremes = 0});
        const Page read = through(form, page);
        const double k = square_error(read.k, page.k), v = square_error(read.v, page.v);
        EXPECT_LT(k, k_before) << bits << " " << rank;
        EXPECT_LT(v, v_before) << bits << " " << rank;
        k_before = k, v_before = v;
      }
    }
}

TEST(GearForm, WithoutItsAdditionsIsItsCodes) {
  const Page page = draw(9);
  const Page read = through(GearForm(kDims, kTokens, {.rank = 0, .extremes = 0}), page);
  std::vector<uint8_t> codes(64);
  for (size_t i = 0; i < 64; ++i) {
    const KvCodeScale k = kv_encode(2, &page.k[i * 64], 64, codes.data());
    for (size_t j = 0; j < 64; ++j) EXPECT_EQ(read.k[i * 64 + j], kv_code_number(2, codes[j], k));
    const KvCodeScale v = kv_encode(2, &page.v[i * 64], 64, codes.data());
    for (size_t j = 0; j < 64; ++j) EXPECT_EQ(read.v[i * 64 + j], kv_code_number(2, codes[j], v));
  }
}

TEST(GearForm, ExtremesAreExactAndCostTheOthersNothing) {
  Page page = draw(10), spiked = page;
  for (size_t i = 0; i < 64; ++i) spiked.k[i * 64 + i] = 500, spiked.v[i * 64 + (i + 7) % 64] = -300;
  const GearForm form(kDims, kTokens, {.rank = 0, .extremes = 1});
  const Page read = through(form, spiked);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(read.k[i * 64 + i], 500);
    EXPECT_EQ(read.v[i * 64 + (i + 7) % 64], -300);
  }
  const Page without = through(GearForm(kDims, kTokens, {.rank = 0, .extremes = 0}), spiked);
  EXPECT_LT(square_error(read.k, spiked.k), 0.05 * square_error(without.k, spiked.k));
  EXPECT_LT(square_error(read.v, spiked.v), 0.05 * square_error(without.v, spiked.v));
}

// Of noise a product of rank 2 holds little more than its share of directions, and no more than twice that.
TEST(GearForm, NoiseHasLittleForAProduct) {
  const Page page = draw(11);
  const double codes = square_error(through(GearForm(kDims, kTokens, {.rank = 0, .extremes = 0}), page).k, page.k);
  const double both = square_error(through(GearForm(kDims, kTokens, {.rank = 2, .extremes = 0}), page).k, page.k);
  EXPECT_GT(both, 0.8 * codes);
}

TEST(ProductForm, NumbersAreThoseOfTheNearestCentroid) {
  for (size_t width : {2, 4}) {
    std::mt19937 random(12);
    std::normal_distribution<float> normal;
    std::vector<float> books(2 * 2 * kDims * 256);
    for (float& x : books) x = normal(random);
    const ProductForm form(kDims, kTokens, width, books);
    EXPECT_EQ(form.tables(), 2U);
    EXPECT_EQ(form.v_bytes(), kTokens * kDims / width);
    const Page page = draw(13), read = through(form, page, 1);
    const size_t groups = kDims / width;
    for (size_t token = 0; token < kTokens; token += 5)
      for (size_t group = 0; group < groups; ++group) {
        double best = INFINITY, got = 0;
        const float* book = &books[2 * kDims * 256];  // K of the second table
        for (size_t c = 0; c < 256; ++c) {
          double distance = 0;
          for (size_t dim = group; dim < kDims; dim += groups)
            distance += std::pow(double{book[dim * 256 + c]} - page.k[dim * kTokens + token], 2);
          best = std::min(best, distance);
        }
        for (size_t dim = group; dim < kDims; dim += groups)
          got += std::pow(double{read.k[dim * kTokens + token]} - page.k[dim * kTokens + token], 2);
        EXPECT_NEAR(got, best, 1e-5);
      }
    EXPECT_NE(through(form, page, 0).k, read.k);
  }
}

TEST(PageForm, ANanTakesItsTokensValuesAndNothingElse) {
  Page page = draw(14);
  page.k[3 * kTokens + 9] = NAN;
  page.v[20 * kDims + 1] = NAN;
  Page without = page;
  for (size_t token : {9, 20})
    for (size_t dim = 0; dim < kDims; ++dim) without.k[dim * kTokens + token] = without.v[token * kDims + dim] = 0;
  const SortedForm form(kDims, kTokens, {});
  const Page read = through(form, page), want = through(form, without);
  EXPECT_EQ(read.k, want.k);
  for (size_t i = 0; i < read.v.size(); ++i) {
    if (i / kDims == 9 || i / kDims == 20) {
      EXPECT_TRUE(std::isnan(read.v[i]));
    } else {
      EXPECT_EQ(read.v[i], want.v[i]);
    }
  }
}

}  // namespace
}  // namespace godwit
