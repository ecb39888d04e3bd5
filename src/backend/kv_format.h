// How the K and V of one page are stored. A page belongs to one (layer, KV head) of one or more sequences and has
// `page_tokens` slots. Slabs are arrays of pages; a page is named by its index.
//
// The *canonical* layout, which is what leaves the process, is K[page_tokens, head_dim] then V[page_tokens, head_dim];
// docs/formats/kv-pages.md has the layout of codes. A back-end may keep pages in a layout of its own (the CPU keeps K
// transposed, K[head_dim, page_tokens], so that scores of neighbouring tokens are neighbouring lanes); kv_export and
// kv_import of backend.h convert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace godwit {

using PageId = uint32_t;
inline constexpr uint32_t kNoAux = UINT32_MAX;

struct KvFormat {
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16; the type of scales and middles (kF16) if there are codes
  int head_dim = 0;
  int page_tokens = 64;
  // Bits of the codes (kv_codes.h) of K and of V, 2, 4 or 8; both 0: numbers of `dtype`.
  int k_bits = 0, v_bits = 0;
  // Codes of K share scale and middle with those of the same dimension and page, not of the same token.
  bool k_by_dim = false;
  // Pages are open at first, numbers of open_format() in a slab of their own, and later sealed: the codes above. What a
  // query reads follows from positions alone: a page sealed if sealed_for() says so, or else open.
  bool seals = false;
  int open_first = 0;  // tokens at the beginning that stay open, whole pages
  int open_last = 0;   // tokens before the page of a query that it reads from open pages, whole pages

  bool has_codes() const { return k_bits != 0; }
  KvFormat open_format() const { return {.dtype = DType::kF16, .head_dim = head_dim, .page_tokens = page_tokens}; }
  // Whether a query at `position` reads the page from `page_position` on sealed.
  bool sealed_for(int32_t page_position, int32_t position) const {
    return seals && page_position >= open_first &&
           int64_t{page_position} + page_tokens + open_last <= position - position % page_tokens;
  }
  size_t k_bytes() const { return half_bytes(k_bits, k_by_dim ? head_dim : page_tokens); }
  size_t v_bytes() const { return half_bytes(v_bits, page_tokens); }
  size_t page_bytes() const { return k_bytes() + v_bytes(); }
  // Explicit slot data of a page that was compacted or merged: int32 position[page_tokens], float bias[page_tokens].
  size_t aux_bytes() const { return static_cast<size_t>(page_tokens) * (sizeof(int32_t) + sizeof(float)); }

 private:
  size_t half_bytes(int bits, int scales) const {
    const size_t numbers = static_cast<size_t>(head_dim) * static_cast<size_t>(page_tokens);
    if (bits == 0) return dtype_bytes(dtype, numbers);
    return numbers * static_cast<size_t>(bits) / 8 + 2 * dtype_bytes(dtype, static_cast<size_t>(scales));
  }
};

// A place for one token's K and V.
struct KvSlot {
  PageId page;
  uint32_t slot;  // < page_tokens
};

}  // namespace godwit
