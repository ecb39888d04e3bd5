// kv_seal: what sealed pages hold, read back and through the canonical layout.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/kv_codes.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr int kTokens = 64, kDim = 64;

class KvSealTest : public testing::Test {
 protected:
  // One open page of normal numbers of f16, and pages 0 and 1 of the format.
  void seal(const KvFormat& format, float outlier = 1) {
    format_ = format;
    slab_ = backend_->allocate(2 * format.page_bytes()).value();
    open_ = backend_->allocate(format.open_format().page_bytes()).value();
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    k_.resize(size_t{kTokens} * kDim), v_.resize(k_.size());
    for (auto* numbers : {&k_, &v_})
      for (float& x : *numbers) x = f16_to_float(float_to_f16(normal(random)));
    for (size_t i = 5; i < k_.size(); i += kDim) k_[i] = f16_to_float(float_to_f16(k_[i] * outlier));  // one dimension
    std::vector<KvSlot> slots;
    for (uint32_t i = 0; i < kTokens; ++i) slots.push_back({kOpenPage, i});
    Buffer k = device(k_), v = device(v_);
    backend_->kv_write({.format = format,
                        .slab = slab_.data(),
                        .slots = slots,
                        .k = Tensor(k.data(), DType::kF32, {kTokens, 1, kDim}),
                        .v = Tensor(v.data(), DType::kF32, {kTokens, 1, kDim}),
                        .open_slab = open_.data()});
    const KvSeal page{kOpenPage, 1};
    backend_->kv_seal({.format = format, .open_slab = open_.data(), .slab = slab_.data(), .pages = {&page, 1}});
  }
  Buffer device(const std::vector<float>& numbers) {
    Buffer buffer = backend_->allocate(numbers.size() * sizeof(float)).value();
    backend_->upload(buffer.data(), std::as_bytes(std::span(numbers)));
    return buffer;
  }
  void read(PageId page, std::vector<float>& k, std::vector<float>& v) {
    std::vector<KvSlot> slots;
    for (uint32_t i = 0; i < kTokens; ++i) slots.push_back({page, i});
    k.resize(k_.size()), v.resize(k_.size());
    Buffer keys = device(k), values = device(v);
    backend_->kv_read({.format = format_,
                       .slab = slab_.data(),
                       .slots = slots,
                       .k = Tensor(keys.data(), DType::kF32, {kTokens, kDim}),
                       .v = Tensor(values.data(), DType::kF32, {kTokens, kDim}),
                       .open_slab = open_.data()});
    backend_->download(std::as_writable_bytes(std::span(k)), keys.data());
    backend_->download(std::as_writable_bytes(std::span(v)), values.data());
  }
  std::vector<std::byte> exported(PageId page) {
    std::vector<std::byte> bytes(format_.page_bytes());
    backend_->kv_export(format_, slab_.data(), page, bytes);
    return bytes;
  }

  std::unique_ptr<Backend> backend_ = make_guarded_backend({.threads = 2, .simd = ""}).value();
  KvFormat format_;
  Buffer slab_, open_;
  std::vector<float> k_, v_;  // [tokens, dim]
};

KvFormat by_dim(int bits) {
  return {.head_dim = kDim, .k_bits = bits, .v_bits = bits, .k_by_dim = true, .seals = true};
}

KvFormat sparse(int k_keep, int v_keep) {
  return {.head_dim = kDim, .k_keep = k_keep, .v_keep = v_keep, .seals = true};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0;
  for (size_t i = 0; i < a.size(); ++i) square += double{a[i] - b[i]} * (a[i] - b[i]);
  return std::sqrt(square);
}

TEST_F(KvSealTest, OpenPagesReadAsTheyWereWritten) {
  seal(by_dim(2));
  std::vector<float> k, v;
  read(kOpenPage, k, v);
  EXPECT_EQ(k, k_);
  EXPECT_EQ(v, v_);
}

TEST_F(KvSealTest, PagesGoThroughTheCanonicalLayout) {
  for (const KvFormat& format : {by_dim(2), by_dim(4), sparse(32, 20), sparse(64, 64), sparse(1, 63)}) {
    seal(format);
    const auto page = exported(1);
    backend_->kv_import(format, slab_.data(), 0, page);
    EXPECT_EQ(exported(0), page);
    std::vector<float> k, v, other_k, other_v;
    read(1, k, v);
    read(0, other_k, other_v);
    EXPECT_EQ(k, other_k);
    EXPECT_EQ(v, other_v);
  }
}

TEST_F(KvSealTest, AnOutlyingDimensionOnlyCostsItself) {
  for (int bits : {2, 4}) {
    seal(by_dim(bits), 30);
    std::vector<float> k, v, by_token(k_);
    read(1, k, v);
    std::vector<uint8_t> codes(kDim);
    for (size_t token = 0; token < kTokens; ++token) {
      const KvCodeScale scale = kv_encode(bits, &k_[token * kDim], kDim, codes.data());
      for (size_t i = 0; i < kDim; ++i) by_token[token * kDim + i] = kv_code_number(bits, codes[i], scale);
    }
    for (size_t i = 0; i < k.size(); ++i)
      if (i % kDim == 5) k[i] = by_token[i] = k_[i];
    EXPECT_LT(distance(k, k_), 0.3 * distance(by_token, k_)) << bits;
  }
}

TEST_F(KvSealTest, SparsePagesKeepTheLargestAndNothingElse) {
  for (const auto& [k_keep, v_keep] : {std::pair{32, 32}, std::pair{16, 40}, std::pair{64, 1}}) {
    seal(sparse(k_keep, v_keep));
    std::vector<float> k, v;
    read(1, k, v);
    for (const auto& [got, want, keep] : {std::tuple{k, k_, k_keep}, std::tuple{v, v_, v_keep}}) {
      double dropped = 0;
      for (size_t token = 0; token < kTokens; ++token) {
        std::vector<float> sizes;
        for (size_t i = token * kDim; i < (token + 1) * kDim; ++i) {
          sizes.push_back(std::abs(want[i]));
          EXPECT_TRUE(got[i] == want[i] || got[i] == 0);
        }
        std::sort(sizes.begin(), sizes.end());
        for (int i = 0; i < kDim - keep; ++i)
          dropped += double{sizes[static_cast<size_t>(i)]} * sizes[static_cast<size_t>(i)];
      }
      EXPECT_NEAR(distance(got, want), std::sqrt(dropped), 1e-6 * std::sqrt(dropped)) << keep;
    }
  }
}

// Bitmap and numbers of each token, one after the other, as docs/formats/kv-pages.md says.
TEST_F(KvSealTest, TheCanonicalLayoutOfSparsePages) {
  seal(sparse(32, 20));
  std::vector<float> k, v;
  read(1, k, v);
  const auto page = exported(1);
  const auto* bitmap = page.data();
  const auto* numbers = reinterpret_cast<const uint16_t*>(page.data() + kTokens * kDim / 8);
  for (size_t i = 0; i < k.size(); ++i) {
    const bool kept = (static_cast<unsigned>(bitmap[i / 8]) >> (i % 8) & 1) != 0;
    EXPECT_EQ(k[i], kept ? f16_to_float(*numbers++) : 0.0f) << i;
  }
  EXPECT_EQ(reinterpret_cast<const std::byte*>(numbers), page.data() + format_.k_bytes());
}

}  // namespace
}  // namespace godwit
