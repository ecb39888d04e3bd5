// A form of sealed pages: how the K and V of a whole page, none of whose slots changes any more, become bytes and are
// read again. A codec that seals has a class of its own in forms/, which is the definition of the form and its scalar
// reference; back-ends read it with kernels of their own, which they choose by kind().
//
// The bytes are those of the canonical layout (docs/formats/kv-pages.md), on every back-end. A page begins with
//   u32 table                which of the form's tables it was sealed with; 0 if there are none
//   u8 lost[page_tokens / 8] tokens whose K or V had a NaN: their V reads as NaN, from the lowest bit on
// and K and V follow, K with no padding behind it. Immutable, and safe to share between threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace godwit {

// Whose page it is, and where its tokens stand.
struct PagePlace {
  uint32_t table = 0;                  // of the form's, if it has any
  const int32_t* positions = nullptr;  // [page_tokens], ascending
};

class PageForm {
 public:
  enum class Kind : uint8_t { kSorted, kThin, kGear, kProduct, kLatent };

  virtual ~PageForm() = default;

  Kind kind() const { return kind_; }
  size_t head_dim() const { return head_dim_; }
  size_t page_tokens() const { return page_tokens_; }
  size_t k_bytes() const { return head_bytes() + key_bytes(); }
  size_t v_bytes() const { return value_bytes(); }
  // Where the K of a page begins; its V begins at k_bytes().
  size_t head_bytes() const { return sizeof(uint32_t) + page_tokens_ / 8; }

  // How many tables there are, one for each KV head of each layer in order; 0: the form needs none.
  virtual size_t tables() const { return 0; }

  // k[head_dim, page_tokens] and v[page_tokens, head_dim], numbers of f16, become the page. Changes them: infinities
  // become the largest numbers, and tokens with a NaN zeros.
  void seal(const PagePlace& place, float* k, float* v, std::byte* page) const;

  float key(const std::byte* page, size_t token, size_t dim) const { return key_at(page, token, dim); }
  float value(const std::byte* page, size_t token, size_t dim) const {
    return is_lost(page, token) ? std::numeric_limits<float>::quiet_NaN() : value_at(page, token, dim);
  }

  // All numbers at once, up to rounding those of key() and value(): k[head_dim, page_tokens], v[page_tokens, head_dim].
  void read(const std::byte* page, float* k, float* v) const;

  static uint32_t table_of(const std::byte* page) {
    uint32_t table;
    std::memcpy(&table, page, sizeof(table));
    return table;
  }
  bool is_lost(const std::byte* page, size_t token) const {
    return (static_cast<unsigned>(page[sizeof(uint32_t) + token / 8]) >> (token % 8) & 1) != 0;
  }
  bool any_lost(const std::byte* page) const {
    return std::any_of(page + sizeof(uint32_t), page + head_bytes(),
                       [](std::byte byte) { return byte != std::byte{}; });
  }

 protected:
  PageForm(Kind kind, size_t head_dim, size_t page_tokens)
      : kind_(kind), head_dim_(head_dim), page_tokens_(page_tokens) {}

  virtual size_t key_bytes() const = 0;
  virtual size_t value_bytes() const = 0;
  // Everything but the head of the page. The numbers are finite.
  virtual void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const = 0;
  virtual float key_at(const std::byte* page, size_t token, size_t dim) const = 0;
  virtual float value_at(const std::byte* page, size_t token, size_t dim) const = 0;
  // For a form that does better than number by number.
  virtual void read_numbers(const std::byte* page, float* k, float* v) const;

 private:
  Kind kind_;
  size_t head_dim_, page_tokens_;
};

}  // namespace godwit
