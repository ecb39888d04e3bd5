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
  // Bits of the codes (kv_codes.h) of K and of V, 4 or 8; both 0: numbers of `dtype`.
  int k_bits = 0, v_bits = 0;

  bool has_codes() const { return k_bits != 0; }
  size_t k_bytes() const { return half_bytes(k_bits); }
  size_t v_bytes() const { return half_bytes(v_bits); }
  size_t page_bytes() const { return k_bytes() + v_bytes(); }
  // Explicit slot data of a page that was compacted or merged: int32 position[page_tokens], float bias[page_tokens].
  size_t aux_bytes() const { return static_cast<size_t>(page_tokens) * (sizeof(int32_t) + sizeof(float)); }

 private:
  size_t half_bytes(int bits) const {
    const auto tokens = static_cast<size_t>(page_tokens), numbers = static_cast<size_t>(head_dim) * tokens;
    if (bits == 0) return dtype_bytes(dtype, numbers);
    return numbers * static_cast<size_t>(bits) / 8 + 2 * dtype_bytes(dtype, tokens);  // a scale and a middle per token
  }
};

// A place for one token's K and V.
struct KvSlot {
  PageId page;
  uint32_t slot;  // < page_tokens
};

}  // namespace godwit
