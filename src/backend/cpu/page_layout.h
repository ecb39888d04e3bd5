// Where the numbers of a page lie in the CPU's layout: K[head_dim, page_tokens], then V[page_tokens, head_dim].
//
// Codes lie so that products of bf16 pairs find what they multiply side by side. Lines are dimensions of K and tokens
// of V, columns the other way around; every byte belongs to one token.
//   8 bits       [line / 2][column][line % 2]
//   4 bits, K    [dim / 4][token][dim % 2], dims with dim % 4 < 2 in the lower half of the byte
//   4 bits, V    [token / 2][dim / 32][dim % 16][token % 2], dims with dim % 32 < 16 in the lower half
// After the codes of K, and after those of V: f16 scale[page_tokens], f16 middle[page_tokens].
#pragma once

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
    const std::byte* half = page + offset_;
    if (bits_ != 0) return kv_code_number(bits_, code(page, token, dim), scale(page, token));
    const size_t at = index(token, dim);
    if (dtype_ == DType::kF32) return reinterpret_cast<const float*>(half)[at];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(half)[at];
    return dtype_ == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
  }

  // --- numbers
  size_t index(size_t token, size_t dim) const { return is_k_ ? dim * tokens_ + token : token * dims_ + dim; }

  // --- codes
  int bits() const { return bits_; }
  uint8_t code(const std::byte* page, size_t token, size_t dim) const {
    const auto byte = static_cast<uint8_t>(page[offset_ + byte_of(token, dim)]);
    return bits_ == 8 ? byte : static_cast<uint8_t>(upper(dim) ? byte >> 4 : byte & 15);
  }
  void set_code(std::byte* page, size_t token, size_t dim, uint8_t code) const {
    std::byte& byte = page[offset_ + byte_of(token, dim)];
    if (bits_ == 8)
      byte = std::byte{code};
    else
      byte = upper(dim) ? (byte & std::byte{15}) | std::byte{code} << 4 : (byte & std::byte{240}) | std::byte{code};
  }
  KvCodeScale scale(const std::byte* page, size_t token) const {
    const auto* scales = reinterpret_cast<const uint16_t*>(page + offset_ + code_bytes());
    return {scales[token], scales[tokens_ + token]};
  }
  void set_scale(std::byte* page, size_t token, KvCodeScale scale) const {
    auto* scales = reinterpret_cast<uint16_t*>(page + offset_ + code_bytes());
    scales[token] = scale.scale;
    scales[tokens_ + token] = scale.middle;
  }
  size_t code_bytes() const { return dims_ * tokens_ * static_cast<size_t>(bits_) / 8; }
  size_t offset() const { return offset_; }

 private:
  PageHalf(const KvFormat& format, bool is_k)
      : dtype_(format.dtype),
        is_k_(is_k),
        bits_(is_k ? format.k_bits : format.v_bits),
        dims_(static_cast<size_t>(format.head_dim)),
        tokens_(static_cast<size_t>(format.page_tokens)),
        offset_(is_k ? 0 : format.k_bytes()) {
    GODWIT_DCHECK(bits_ != 4 || dims_ % 32 == 0);
  }

  bool upper(size_t dim) const { return (is_k_ ? dim & 2 : dim & 16) != 0; }
  size_t byte_of(size_t token, size_t dim) const {
    if (bits_ == 8)
      return is_k_ ? (dim / 2 * tokens_ + token) * 2 + dim % 2 : (token / 2 * dims_ + dim) * 2 + token % 2;
    return is_k_ ? (dim / 4 * tokens_ + token) * 2 + dim % 2
                 : token / 2 * dims_ + dim / 32 * 32 + dim % 16 * 2 + token % 2;
  }

  DType dtype_;
  bool is_k_;
  int bits_;
  size_t dims_, tokens_, offset_;
};

// Checks what the CPU can store.
void check_kv_format(const KvFormat& format);

}  // namespace godwit::cpu
