// Block floating point: 16 numbers of a token share a power of two and are whole multiples of it, from -7 to 7 in 4
// bits or from -127 to 127 in 8. One large channel would take the bits of the 15 others in its block, so the channels
// of K are sorted by their largest magnitude in the page, and channels of like size share blocks (Trukhanov and
// Soloveychik, arXiv 2403.20137). Deviation: the paper sorts the rows of W_k once, by their norms, and those of W_q
// with them; here every page has its own order, which costs head_dim bytes and needs neither weights nor calibration.
//
// The error is at most half of the block's power of two, which is at most 2 / 15 (8 bits: 2 / 255) of the block's
// largest number.
//
//   K  u8 order[head_dim]                       the channel that comes first, second ...
//      i8 exponent[head_dim / 16, page_tokens]  of the blocks in that order
//      codes[head_dim, page_tokens]             rows (code_rows.h) in that order
//   V  i8 exponent[page_tokens, head_dim / 16], codes[page_tokens, head_dim]
// A number is (code - top) * 2^exponent, top being 7 or 127.
#pragma once

#include "backend/code_rows.h"
#include "backend/page_form.h"

namespace godwit {

struct SortedOptions {
  int k_bits = 4, v_bits = 4;  // 4 or 8
  bool sorts = true;           // else channels stay in their order
};

class SortedForm final : public PageForm {
 public:
  static constexpr size_t kBlock = 16;

  // REQUIRES: head_dim and page_tokens are multiples of 32, at most 256.
  SortedForm(size_t head_dim, size_t page_tokens, const SortedOptions& options);

  static float top(int bits) { return bits == 4 ? 7.0f : 127.0f; }
  int k_bits() const { return options_.k_bits; }
  int v_bits() const { return options_.v_bits; }
  const uint8_t* order(const std::byte* page) const { return reinterpret_cast<const uint8_t*>(page + head_bytes()); }
  const int8_t* k_exponents(const std::byte* page) const {
    return reinterpret_cast<const int8_t*>(page + head_bytes() + head_dim());
  }
  const std::byte* k_codes(const std::byte* page) const {
    return page + head_bytes() + head_dim() + head_dim() / kBlock * page_tokens();
  }
  const int8_t* v_exponents(const std::byte* page) const { return reinterpret_cast<const int8_t*>(page + k_bytes()); }
  const std::byte* v_codes(const std::byte* page) const {
    return page + k_bytes() + page_tokens() * (head_dim() / kBlock);
  }

 private:
  size_t key_bytes() const override;
  size_t value_bytes() const override;
  void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const override;
  float key_at(const std::byte* page, size_t token, size_t dim) const override;
  float value_at(const std::byte* page, size_t token, size_t dim) const override;

  SortedOptions options_;
};

}  // namespace godwit
