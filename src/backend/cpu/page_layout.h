// Where the numbers of a page lie in the CPU's layout: K[head_dim, page_tokens], then V[page_tokens, head_dim].
//
// Codes lie so that products of bf16 pairs find what they multiply side by side. A byte holds n = 8 / bits codes of one
// token; which of them, from the lowest bits on, is the field:
//   K    [dim / 2n][token][dim % 2], field dim % 2n / 2
//   V    [token / 2][dim / 16n][dim % 16][token % 2], field dim % 16n / 16
// Sparse pages hold K and V each as rows of the matrices above: a bitmap [rows, columns / 8], column 0 in the lowest
// bit, and then the numbers whose bits are set, row by row. Pages with a form of their own (page_form.h) are as it
// says. After the codes of K, and after those of V: f16 scale[],
// f16 middle[], of page_tokens or of head_dim numbers each.
#pragma once

#include <bit>

#include "backend/kv_codes.h"
#include "backend/kv_format.h"
#include "base/check.h"
#include "tensor/half.h"

namespace godwit::cpu {

// The K or the V of pages; `page` is the first byte of a page.
class PageHalf {
 public:
  static PageHalf keys(const KvFormat& format) { return {format, true}; }
  static PageHalf values(const KvFormat& format) { return {format, false}; }

  float number(const std::byte* page, size_t token, size_t dim) const {
    if (form_ != nullptr) return is_k_ ? form_->key(page, token, dim) : form_->value(page, token, dim);
    const std::byte* half = page + offset_;
    if (bits_ != 0) return kv_code_number(bits_, code(page, token, dim), scale(page, by_dim_ ? dim : token));
    size_t at = index(token, dim);
    if (keep_ != 0) {
      if (!is_kept(page, token, dim)) return 0;
      at = rank(page, at);
      half += bitmap_bytes();
    }
    if (dtype_ == DType::kF32) return reinterpret_cast<const float*>(half)[at];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(half)[at];
    return dtype_ == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }

  // --- numbers
  size_t index(size_t token, size_t dim) const { return is_k_ ? dim * tokens_ + token : token * dims_ + dim; }

  // --- sparse pages
  size_t kept() const { return keep_; }  // of a token
  size_t tokens() const { return tokens_; }
  size_t rows() const { return is_k_ ? dims_ : tokens_; }
  size_t columns() const { return is_k_ ? tokens_ : dims_; }
  size_t bitmap_bytes() const { return dims_ * tokens_ / 8; }
  bool is_kept(const std::byte* page, size_t token, size_t dim) const {
    const size_t at = index(token, dim);
    return (static_cast<unsigned>(page[offset_ + at / 8]) >> (at % 8) & 1) != 0;
  }
  // How many numbers are kept before that of an index.
  size_t rank(const std::byte* page, size_t at) const {
    size_t count = 0;
    for (size_t i = 0; i < at / 8; ++i) count += bits_of(page[offset_ + i]);
    return count + bits_of(page[offset_ + at / 8] & static_cast<std::byte>((1u << at % 8) - 1));
  }

  // --- codes
  int bits() const { return bits_; }
  uint8_t code(const std::byte* page, size_t token, size_t dim) const {
    const auto byte = static_cast<uint8_t>(page[offset_ + byte_of(token, dim)]);
    return static_cast<uint8_t>(byte >> shift(dim) & mask());
  }
  void set_code(std::byte* page, size_t token, size_t dim, uint8_t code) const {
    std::byte& byte = page[offset_ + byte_of(token, dim)];
    const auto kept = static_cast<uint8_t>(static_cast<uint8_t>(byte) & ~(mask() << shift(dim)));
    byte = static_cast<std::byte>(kept | code << shift(dim));
  }
  bool by_dim() const { return by_dim_; }
  size_t scales() const { return by_dim_ ? dims_ : tokens_; }
  // Of a token, or of a dimension.
  KvCodeScale scale(const std::byte* page, size_t of) const {
    const auto* from = reinterpret_cast<const uint16_t*>(page + offset_ + code_bytes());
    return {from[of], from[scales() + of]};
  }
  void set_scale(std::byte* page, size_t of, KvCodeScale scale) const {
    auto* to = reinterpret_cast<uint16_t*>(page + offset_ + code_bytes());
    to[of] = scale.scale;
    to[scales() + of] = scale.middle;
  }
  size_t code_bytes() const { return dims_ * tokens_ * static_cast<size_t>(bits_) / 8; }
  size_t offset() const { return offset_; }

 private:
  PageHalf(const KvFormat& format, bool is_k)
      : dtype_(format.dtype),
        is_k_(is_k),
        by_dim_(is_k && format.k_by_dim),
        bits_(is_k ? format.k_bits : format.v_bits),
        keep_(static_cast<size_t>(is_k ? format.k_keep : format.v_keep)),
        dims_(static_cast<size_t>(format.head_dim)),
        tokens_(static_cast<size_t>(format.page_tokens)),
        offset_(is_k ? 0 : format.k_bytes()),
        form_(format.sealed_form.get()) {}

  static size_t bits_of(std::byte byte) { return static_cast<size_t>(std::popcount(static_cast<unsigned>(byte))); }
  size_t codes_per_byte() const { return 8 / static_cast<size_t>(bits_); }
  unsigned mask() const { return (1u << bits_) - 1; }
  unsigned shift(size_t dim) const {
    const size_t n = codes_per_byte(), field = is_k_ ? dim % (2 * n) / 2 : dim % (16 * n) / 16;
    return static_cast<unsigned>(field) * static_cast<unsigned>(bits_);
  }
  size_t byte_of(size_t token, size_t dim) const {
    const size_t n = codes_per_byte();
    return is_k_ ? (dim / (2 * n) * tokens_ + token) * 2 + dim % 2
                 : (token / 2 * (dims_ / n) + dim / (16 * n) * 16 + dim % 16) * 2 + token % 2;
  }

  DType dtype_;
  bool is_k_, by_dim_;
  int bits_;
  size_t keep_, dims_, tokens_, offset_;
  const PageForm* form_;
};

// Checks what the CPU can store.
void check_kv_format(const KvFormat& format);

}  // namespace godwit::cpu
