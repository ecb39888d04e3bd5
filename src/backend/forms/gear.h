// Codes of few bits and what they miss: the extremes of each vector, which are stored as they are, and the part of the
// error that a product of two thin matrices holds (GEAR, Kang et al., arXiv 2403.05527). Vectors are KIVI's: a
// channel's keys in the page, a token's values.
//   number = middle + scale * level(code) + sum over r of a[r, vector] b[r, place], unless it is an extreme
// The factors are found one after the other by power iterations on what is left, so that the sum of squared errors
// falls with every rank and is never above that of the codes alone. Deviation: factors belong to a page, not to a
// prompt, and so cost half a bit a number and rank (at 64 tokens and head size 64).
//
// K has head_dim vectors of page_tokens numbers, V page_tokens vectors of head_dim; each half is
//   f16 scale[vectors], f16 middle[vectors], f16 a[rank, vectors], f16 b[rank, length], f16 extreme[vectors, 2 n],
//   codes[vectors, length] (code_rows.h), u8 place[vectors, 2 n]: where the extremes are
#pragma once

#include "backend/code_rows.h"
#include "backend/page_form.h"

namespace godwit {

struct GearOptions {
  int k_bits = 2, v_bits = 2;  // 2 or 4
  size_t rank = 2;             // at most kMostRank
  size_t extremes = 1;         // of each end of a vector, at most kMostExtremes
};

// Where things lie in a half of a page.
struct GearHalf {
  size_t vectors, length;
  int bits;
  size_t rank, extremes;

  size_t bytes() const { return places() + vectors * 2 * extremes; }
  const uint16_t* scale(const std::byte* half) const { return reinterpret_cast<const uint16_t*>(half); }
  const uint16_t* middle(const std::byte* half) const { return scale(half) + vectors; }
  const uint16_t* a(const std::byte* half, size_t r) const { return middle(half) + (1 + r) * vectors; }
  const uint16_t* b(const std::byte* half, size_t r) const { return a(half, rank) + r * length; }
  const uint16_t* extreme(const std::byte* half, size_t vector) const { return b(half, rank) + vector * 2 * extremes; }
  const std::byte* codes(const std::byte* half, size_t vector) const {
    return half + numbers() * sizeof(uint16_t) + vector * code_row_bytes(bits, length);
  }
  const uint8_t* place(const std::byte* half, size_t vector) const {
    return reinterpret_cast<const uint8_t*>(half + places()) + vector * 2 * extremes;
  }

 private:
  size_t numbers() const { return (2 + rank + 2 * extremes) * vectors + rank * length; }
  size_t places() const { return numbers() * sizeof(uint16_t) + vectors * code_row_bytes(bits, length); }
};

class GearForm final : public PageForm {
 public:
  static constexpr size_t kMostRank = 8, kMostExtremes = 8;

  // REQUIRES: head_dim and page_tokens are at most 256, and multiples of 32, where 2 bits are used of 64.
  GearForm(size_t head_dim, size_t page_tokens, const GearOptions& options);

  const GearHalf& keys() const { return keys_; }
  const GearHalf& values() const { return values_; }

 private:
  size_t key_bytes() const override { return keys_.bytes(); }
  size_t value_bytes() const override { return values_.bytes(); }
  void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const override;
  float key_at(const std::byte* page, size_t token, size_t dim) const override;
  float value_at(const std::byte* page, size_t token, size_t dim) const override;

  GearHalf keys_, values_;
};

}  // namespace godwit
