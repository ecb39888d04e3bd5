// How the K and V of one page are stored. A page belongs to one (layer, KV head) of one or more sequences and has
// `page_tokens` slots. Slabs are arrays of pages; a page is named by its index.
//
// The *canonical* layout, which is what leaves the process, is K[page_tokens, head_dim] then V[page_tokens, head_dim];
// docs/formats/kv-pages.md has the layout of codes. A back-end may keep pages in a layout of its own (the CPU keeps K
// transposed, K[head_dim, page_tokens], so that scores of neighbouring tokens are neighbouring lanes); kv_export and
// kv_import of backend.h convert.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/page_form.h"
#include "tensor/dtype.h"

namespace godwit {

using PageId = uint32_t;
inline constexpr uint32_t kNoAux = UINT32_MAX;

// The name of a page says which slab of a pool it lies in, and its index there. Where a format seals pages, open ones
// have a slab of their own, whose number is this mark; the others are numbered from 0, one for each format of a pool.
inline constexpr int kPageIndexBits = 27;
inline constexpr size_t kSlabs = (size_t{1} << (32 - kPageIndexBits)) / 2 + 1;
inline constexpr PageId kOpenPage = PageId{1} << 31;
inline bool is_open(PageId page) {
  return (page & kOpenPage) != 0;
}
inline size_t page_slab(PageId page) {
  return page >> kPageIndexBits;
}
inline size_t page_index(PageId page) {
  return page & ((PageId{1} << kPageIndexBits) - 1);
}

struct KvFormat {
  DType dtype = DType::kF16;  // kF32, kF16 or kBF16; the type of scales and middles (kF16) if there are codes
  int head_dim = 0;
  int page_tokens = 64;
  // Bits of the codes (kv_codes.h) of K and of V, 2, 4 or 8; both 0: numbers of `dtype`.
  int k_bits = 0, v_bits = 0;
  // Codes of K share scale and middle with those of the same dimension and page, not of the same token.
  bool k_by_dim = false;
  // How many numbers of a token's K and V are stored, those of largest magnitude, with a bitmap that says which; both
  // 0: all. With pages that are sealed, and without codes.
  int k_keep = 0, v_keep = 0;
  // Pages are open at first, numbers of open_format() in a slab of their own, and later sealed: the codes above. What a
  // query at slot s reads follows from that alone: pages [sealed_begin(), sealed_end(s)) sealed, and all others open.
  bool seals = false;
  int open_first = 0;  // slots at the beginning that stay open, whole pages
  int open_last = 0;   // slots before the page of a query that it reads from open pages, whole pages
  // Pages are sealed where KvSequence::demote() says so, and nowhere else; those slots are then what it is to spare.
  bool demotes = false;
  // How sealed pages are stored, if neither as the codes nor as the numbers above.
  std::shared_ptr<const PageForm> sealed_form = nullptr;

  bool operator==(const KvFormat&) const = default;

  bool has_codes() const { return k_bits != 0; }
  bool is_sparse() const { return k_keep != 0; }
  bool packed() const { return has_codes() || is_sparse() || sealed_form != nullptr; }
  KvFormat open_format() const { return {.dtype = DType::kF16, .head_dim = head_dim, .page_tokens = page_tokens}; }
  KvFormat form(PageId page) const { return is_open(page) ? open_format() : *this; }
  size_t sealed_begin() const { return static_cast<size_t>(open_first / page_tokens); }
  size_t sealed_end(size_t slot) const {
    if (demotes) return sealed_begin();
    const size_t page = slot / static_cast<size_t>(page_tokens);
    return std::max(sealed_begin(), page - std::min(page, static_cast<size_t>(open_last / page_tokens)));
  }
  // The most that a head of so many slots takes while they are computed in steps of at most `step`: the pages of a step
  // that are there in both forms, too.
  size_t most_bytes(size_t slots, size_t step) const {
    const auto size = static_cast<size_t>(page_tokens);
    const size_t pages = (slots + size - 1) / size;
    const size_t open = (static_cast<size_t>(open_first + open_last) + step) / size + 2;
    return pages * page_bytes() + (seals ? std::min(pages, open) * open_format().page_bytes() : 0);
  }
  // Where it demotes: all slots stay, `open` of them at most in open pages, with explicit slot data beside every page.
  size_t most_bytes_demoting(size_t slots, size_t open) const {
    const auto size = static_cast<size_t>(page_tokens);
    const size_t pages = (slots + 2 * size - 1) / size, open_pages = std::min(pages, (open + 2 * size - 1) / size);
    return open_pages * open_format().page_bytes() + (pages - open_pages) * page_bytes() + pages * aux_bytes();
  }
  size_t k_bytes() const {
    return sealed_form ? sealed_form->k_bytes() : half_bytes(k_bits, k_keep, k_by_dim ? head_dim : page_tokens);
  }
  size_t v_bytes() const { return sealed_form ? sealed_form->v_bytes() : half_bytes(v_bits, v_keep, page_tokens); }
  size_t page_bytes() const { return k_bytes() + v_bytes(); }
  // Of form(page), which they do not copy: attention asks for every page.
  size_t k_bytes(PageId page) const { return is_open(page) ? open_format().k_bytes() : k_bytes(); }
  size_t page_bytes(PageId page) const { return is_open(page) ? open_format().page_bytes() : page_bytes(); }
  // Explicit slot data of a page that was compacted or merged: int32 position[page_tokens], float bias[page_tokens].
  size_t aux_bytes() const { return static_cast<size_t>(page_tokens) * (sizeof(int32_t) + sizeof(float)); }

 private:
  size_t half_bytes(int bits, int keep, int scales) const {
    const size_t numbers = static_cast<size_t>(head_dim) * static_cast<size_t>(page_tokens);
    if (keep != 0)
      return numbers / 8 + dtype_bytes(dtype, static_cast<size_t>(keep) * static_cast<size_t>(page_tokens));
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
