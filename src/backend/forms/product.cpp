#include "backend/forms/product.h"

#include <array>

#include "base/check.h"
#include "tensor/half.h"

namespace godwit {

// Loops that compilers turn into vectors: sealing a page asks thousands of times.
size_t nearest_centroid(const float* book, size_t stride, const float* point, size_t width) {
  constexpr size_t kCount = ProductForm::kCentroids, kLanes = 16;
  std::array<float, kCount> distance{};
  for (size_t i = 0; i < width; ++i) {
    const float *numbers = book + i * stride, number = point[i];
    for (size_t c = 0; c < kCount; ++c) distance[c] += (numbers[c] - number) * (numbers[c] - number);
  }
  std::array<float, kLanes> least;
  std::copy_n(distance.begin(), kLanes, least.begin());
  for (size_t c = kLanes; c < kCount; c += kLanes)
    for (size_t i = 0; i < kLanes; ++i) least[i] = distance[c + i] < least[i] ? distance[c + i] : least[i];
  const float best = *std::min_element(least.begin(), least.end());
  return static_cast<size_t>(std::find(distance.begin(), distance.end(), best) - distance.begin());
}

ProductForm::ProductForm(size_t head_dim, size_t page_tokens, size_t width, std::vector<float> books)
    : PageForm(Kind::kProduct, head_dim, page_tokens), groups_(head_dim / width), books_(std::move(books)) {
  GODWIT_CHECK(width > 0 && groups_ * width == head_dim && groups_ % 16 == 0 && page_tokens % 16 == 0);
  GODWIT_CHECK(!books_.empty() && books_.size() % (2 * head_dim * kCentroids) == 0);
  round_books();
}

void ProductForm::round_books() {
  bf16_.resize(books_.size() / (2 * kLine));
  for (uint32_t table = 0; table < tables(); ++table) {
    auto* k = const_cast<uint8_t*>(k_bf16(table));
    auto* v = reinterpret_cast<uint16_t*>(const_cast<uint32_t*>(v_bf16(table)));
    for (size_t dim = 0; dim < head_dim(); ++dim)
      for (size_t i = 0; i < kCentroids; ++i) {
        const uint16_t key = float_to_bf16(k_book(table)[dim * kCentroids + i]);
        k[2 * dim * kCentroids + i] = static_cast<uint8_t>(key);
        k[(2 * dim + 1) * kCentroids + i] = static_cast<uint8_t>(key >> 8);
        const size_t part = dim / groups_, word = (part / 2 * groups_ + dim % groups_) * kCentroids + i;
        if (width() % 2 == 0) v[2 * word + part % 2] = float_to_bf16(v_book(table)[dim * kCentroids + i]);
      }
  }
}

void ProductForm::seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const {
  const size_t width = head_dim() / groups_, tokens = page_tokens();
  auto* k_to = const_cast<uint8_t*>(k_index(page));
  auto* v_to = const_cast<uint8_t*>(v_index(page));
  std::vector<float> point(width);
  for (size_t group = 0; group < groups_; ++group)
    for (size_t token = 0; token < tokens; ++token) {
      const size_t at = group * kCentroids, stride = groups_ * kCentroids;
      for (size_t i = 0; i < width; ++i) point[i] = k[(i * groups_ + group) * tokens + token];
      k_to[group * tokens + token] =
          static_cast<uint8_t>(nearest_centroid(k_book(place.table) + at, stride, point.data(), width));
      for (size_t i = 0; i < width; ++i) point[i] = v[token * head_dim() + i * groups_ + group];
      v_to[token * groups_ + group] =
          static_cast<uint8_t>(nearest_centroid(v_book(place.table) + at, stride, point.data(), width));
    }
}

float ProductForm::key_at(const std::byte* page, size_t token, size_t dim) const {
  return k_book(table_of(page))[dim * kCentroids + k_index(page)[dim % groups_ * page_tokens() + token]];
}

float ProductForm::value_at(const std::byte* page, size_t token, size_t dim) const {
  return v_book(table_of(page))[dim * kCentroids + v_index(page)[token * groups_ + dim % groups_]];
}

}  // namespace godwit
