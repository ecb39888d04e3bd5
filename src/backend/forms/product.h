// Product quantization: of head_dim / width groups of `width` numbers of a token each is stored as the index of the
// nearest of 256 centroids, which were fitted to the keys or values of the KV head (MILLION, Wang et al., arXiv
// 2504.03661). Group g holds the dimensions g, g + groups, g + 2 groups ...: with width 2, what RoPE turns together.
//
//   K  u8 index[groups, page_tokens]
//   V  u8 index[page_tokens, groups]
#pragma once

#include <vector>

#include "backend/page_form.h"

namespace godwit {

class ProductForm final : public PageForm {
 public:
  static constexpr size_t kCentroids = 256;

  // `books`: of each table those of K, then those of V, each [width, groups, kCentroids], finite.
  // REQUIRES: groups is a multiple of 16, page_tokens too.
  ProductForm(size_t head_dim, size_t page_tokens, size_t width, std::vector<float> books);

  size_t tables() const override { return books_.size() / (2 * head_dim() * kCentroids); }
  size_t groups() const { return groups_; }
  size_t width() const { return head_dim() / groups_; }
  // Centroids' numbers of each dimension, [head_dim, kCentroids].
  const float* k_book(uint32_t table) const { return &books_[table * 2 * head_dim() * kCentroids]; }
  const float* v_book(uint32_t table) const { return k_book(table) + head_dim() * kCentroids; }
  // The same in bf16, for kernels that multiply it. Of K the lower and the upper bytes of a dimension's numbers,
  // [head_dim, 2, kCentroids], in whole cache lines. Of V, if the width is even, two numbers in a word, the first in
  // its lower half: [width / 2, groups, kCentroids], those of dimensions 2i groups + g and (2i + 1) groups + g.
  const uint8_t* k_bf16(uint32_t table) const {
    return reinterpret_cast<const uint8_t*>(&bf16_[table * head_dim() * kCentroids / kLine]);
  }
  const uint32_t* v_bf16(uint32_t table) const {
    return reinterpret_cast<const uint32_t*>(k_bf16(table) + 2 * head_dim() * kCentroids);
  }
  const uint8_t* k_index(const std::byte* page) const { return reinterpret_cast<const uint8_t*>(page + head_bytes()); }
  const uint8_t* v_index(const std::byte* page) const { return reinterpret_cast<const uint8_t*>(page + k_bytes()); }

 private:
  size_t key_bytes() const override { return groups_ * page_tokens(); }
  size_t value_bytes() const override { return groups_ * page_tokens(); }
  void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const override;
  float key_at(const std::byte* page, size_t token, size_t dim) const override;
  float value_at(const std::byte* page, size_t token, size_t dim) const override;

  static constexpr size_t kLine = 16;  // numbers of K and V, each, that share a cache line of bf16_
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  void round_books();

  size_t groups_;
  std::vector<float> books_;
  std::vector<Line> bf16_;  // [tables, 2 (K and V)]
};

// The index of the centroid nearest to point[width], of equals the first; book[width, stride] begins with the numbers
// of the centroids of a group, `stride` floats apart from dimension to dimension. All are finite.
size_t nearest_centroid(const float* book, size_t stride, const float* point, size_t width);

}  // namespace godwit
