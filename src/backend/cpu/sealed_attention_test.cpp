// Attention over one sealed page, of every form and many sizes of heads, on every SIMD target: against the formula in
// fp64 on what kv_read says is stored.
#include <cmath>
#include <random>

#include "backend/cpu/attention_testing.h"
#include "backend/forms/gear.h"
#include "backend/forms/latent.h"
#include "backend/forms/product.h"
#include "backend/forms/sorted.h"
#include "backend/forms/thin.h"
#include "tensor/half.h"

namespace godwit::testing {
namespace {

constexpr int kTokens = 64, kFirst = 1000, kHeads = 3;

std::vector<float> normal_numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

// Vectors of length 1 that are at right angles: products of reflections.
std::vector<float> orthonormal(size_t dims, uint32_t seed) {
  std::vector<float> basis(dims * dims);
  for (size_t i = 0; i < dims; ++i) basis[i * dims + i] = 1;
  for (uint32_t n = 0; n < 3; ++n) {
    const std::vector<float> mirror = normal_numbers(dims, seed + n);
    double square = 0;
    for (float x : mirror) square += double{x} * x;
    for (size_t i = 0; i < dims; ++i) {
      double dot = 0;
      for (size_t j = 0; j < dims; ++j) dot += double{basis[i * dims + j]} * mirror[j];
      for (size_t j = 0; j < dims; ++j) basis[i * dims + j] -= static_cast<float>(2 * dot / square * mirror[j]);
    }
  }
  return basis;
}

KvFormat with_form(std::shared_ptr<const PageForm> form) {
  return {.head_dim = static_cast<int>(form->head_dim()), .seals = true, .sealed_form = std::move(form)};
}

KvFormat product(size_t dims, size_t width) {
  return with_form(std::make_shared<ProductForm>(dims, kTokens, width, normal_numbers(2 * dims * 256, 5)));
}

KvFormat latent(size_t dims, const LatentOptions& options, bool pairs) {
  std::vector<float> bases = orthonormal(dims, 1), v = orthonormal(dims, 9);
  bases.insert(bases.end(), v.begin(), v.end());
  LatentRope rope{.pairs = pairs, .rotary_dim = dims / 4 * 2, .speed = {}};
  for (size_t i = 0; i < rope.rotary_dim / 2; ++i)
    rope.speed.push_back(std::pow(0.1f, static_cast<float>(i) / static_cast<float>(rope.rotary_dim / 2)));
  return with_form(std::make_shared<LatentForm>(dims, options, std::move(rope), std::move(bases)));
}

std::vector<KvFormat> formats() {
  std::vector<KvFormat> all;
  for (int dims : {16, 48, 64, 80, 256})
    all.push_back({.head_dim = dims, .k_keep = dims / 2, .v_keep = dims / 3, .seals = true});
  for (size_t dims : {16, 48, 128})
    all.push_back(with_form(std::make_shared<ThinForm>(dims, kTokens, dims / 3, std::vector<float>())));
  for (size_t dims : {32, 96, 128}) {
    all.push_back(with_form(
        std::make_shared<GearForm>(dims, kTokens, GearOptions{.k_bits = 4, .v_bits = 4, .rank = 3, .extremes = 2})));
    all.push_back(with_form(std::make_shared<SortedForm>(dims, kTokens, SortedOptions{})));
  }
  for (const auto& [dims, width] : {std::pair{16, 1}, {32, 2}, {96, 2}, {48, 3}, {64, 4}, {128, 4}})
    all.push_back(product(static_cast<size_t>(dims), static_cast<size_t>(width)));
  all.push_back(latent(16, {.strong = 6, .weak_bits = 4}, false));
  all.push_back(latent(48, {.k_bits = 8, .v_bits = 16, .strong = 7, .weak_bits = 2}, true));
  all.push_back(latent(64, {.k_bits = 16, .v_bits = 8, .strong = 20, .weak_bits = 0}, false));
  all.push_back(latent(80, {.k_bits = 2, .v_bits = 4, .strong = 33, .weak_bits = 0}, true));
  all.push_back(latent(128, {.strong = 64, .weak_bits = 2}, false));
  return all;
}

class SealedAttention : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr PageId kSealed = 1;

  // Writes a page of numbers times `size`, seals it, and reads what it holds. The values of token `lost` have a NaN.
  void seal(const KvFormat& format, float size = 1, int lost = -1) {
    format_ = format;
    const auto dims = static_cast<size_t>(format.head_dim);
    slab_ = backend_->allocate(2 * format.page_bytes()).value();
    open_ = backend_->allocate(format.open_format().page_bytes()).value();
    k_ = normal_numbers(kTokens * dims, 3), v_ = normal_numbers(kTokens * dims, 4);
    for (float& x : v_) x *= size;
    if (lost >= 0) v_[static_cast<size_t>(lost) * dims + 5] = std::numeric_limits<float>::quiet_NaN();
    auto slots = [](PageId page) {
      std::vector<KvSlot> all;
      for (uint32_t i = 0; i < kTokens; ++i) all.push_back({page, i});
      return all;
    };
    backend_->kv_write({.format = format,
                        .slab = slab_.data(),
                        .slots = slots(kOpenPage),
                        .k = Tensor(k_.data(), DType::kF32, {kTokens, 1, format.head_dim}),
                        .v = Tensor(v_.data(), DType::kF32, {kTokens, 1, format.head_dim}),
                        .open_slab = open_.data()});
    const KvSeal page{.open = kOpenPage, .sealed = kSealed, .first_position = kFirst};
    backend_->kv_seal({.format = format, .open_slab = open_.data(), .slab = slab_.data(), .pages = {&page, 1}});
    backend_->kv_read({.format = format,
                       .slab = slab_.data(),
                       .slots = slots(kSealed),
                       .k = Tensor(k_.data(), DType::kF32, {kTokens, format.head_dim}),
                       .v = Tensor(v_.data(), DType::kF32, {kTokens, format.head_dim}),
                       .open_slab = open_.data()});
  }

  // Queries of several positions, with outputs and the largest value in units of `size`. Who sees a NaN has one.
  void expect_attention(double bound, float size = 1) {
    std::vector<int32_t> positions = {kFirst, kFirst + 36, kFirst + 63, kFirst + 5000};
    const auto rows = static_cast<int64_t>(positions.size());
    const auto dims = static_cast<size_t>(format_.head_dim);
    const float scale = 1 / std::sqrt(static_cast<float>(dims));
    std::vector<float> q = normal_numbers(positions.size() * kHeads * dims, 7), out(q.size()), lse(q.size() / dims);
    AttentionPlan plan;
    plan.pages.push_back({.page = kSealed, .first_position = kFirst, .count = kTokens});
    plan.tiles.push_back({0, static_cast<int32_t>(rows), 0, 0, 1});
    backend_->attention({.format = format_,
                         .slab = slab_.data(),
                         .open_slab = open_.data(),
                         .plan = &plan,
                         .q = Tensor(q.data(), DType::kF32, {rows, kHeads, format_.head_dim}),
                         .positions = Tensor(positions.data(), DType::kI32, {rows}),
                         .kv_heads = 1,
                         .scale = scale,
                         .partial = {Tensor(out.data(), DType::kF32, {rows, kHeads, format_.head_dim}),
                                     Tensor(lse.data(), DType::kF32, {rows, kHeads})}});
    for (size_t query = 0; query < lse.size(); ++query) {
      std::vector<double> sum(dims);
      double total = 0;
      bool sees_nan = false;
      for (size_t t = 0; t < kTokens && kFirst + static_cast<int>(t) <= positions[query / kHeads]; ++t) {
        double score = 0;
        for (size_t d = 0; d < dims; ++d) score += double{q[query * dims + d]} * k_[t * dims + d];
        const double weight = std::exp(score * scale);
        total += weight;
        for (size_t d = 0; d < dims; ++d) sum[d] += weight * v_[t * dims + d];
        sees_nan = sees_nan || std::isnan(v_[t * dims + 5]);
      }
      if (sees_nan) {
        ASSERT_TRUE(std::isnan(out[query * dims + 5])) << query;
        continue;
      }
      ASSERT_NEAR(lse[query], std::log(total), bound) << query;
      for (size_t d = 0; d < dims; ++d)
        ASSERT_NEAR(out[query * dims + d] / size, sum[d] / total / size, bound) << query << " " << d;
    }
  }
  double bound() const { return multiplies_bf16(GetParam(), DType::kF16) ? 3e-2 : 1e-4; }

  std::unique_ptr<Backend> backend_ = cpu_backend(GetParam());
  KvFormat format_;
  Buffer slab_, open_;
  std::vector<float> k_, v_;  // [tokens, dim], as stored
};

TEST_P(SealedAttention, EqualsTheFormula) {
  int number = 0;
  for (const KvFormat& format : formats()) {
    SCOPED_TRACE(fmt::format("format {} head_dim {}", number++, format.head_dim));
    seal(format);
    expect_attention(bound());
    if (HasFatalFailure()) return;
  }
}

// Most numbers are then subnormal in f16.
TEST_P(SealedAttention, OfSparseNumbersThatAreTiny) {
  constexpr float kSize = 0x1p-17f;
  seal({.head_dim = 64, .k_keep = 32, .v_keep = 32, .seals = true}, kSize);
  expect_attention(bound(), kSize);
}

// Also where values are packed after the keys have been used.
TEST_P(SealedAttention, ANanReachesOnlyWhoSeesIt) {
  for (const KvFormat& format : formats()) {
    if (format.sealed_form == nullptr) continue;
    SCOPED_TRACE(fmt::format("kind {} head_dim {}", static_cast<int>(format.sealed_form->kind()), format.head_dim));
    seal(format, 1, 40);
    expect_attention(bound());
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SealedAttention, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace godwit::testing
