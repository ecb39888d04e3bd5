// The lowest and the highest number of each dimension among the keys of a full page, kept on the host: 8 bytes a
// dimension and page, which is 3% of an f16 cache with pages of 64 tokens.
#pragma once

#include <span>
#include <vector>

#include "kv/pool.h"

namespace godwit {

class PageBounds {
 public:
  // Reads the keys of those pages whose bounds are not known yet or whose contents changed. REQUIRES: full pages of one
  // layer and one pool, which is the same in every call.
  void update(const KvPool& pool, int layer, std::span<const PageRef> pages);
  // At least q · k for every key k of the page. REQUIRES: updated.
  float score(PageId page, std::span<const float> q) const;

 private:
  struct Slab {                    // by page_index()
    std::vector<uint64_t> stamps;  // 0: unknown
    std::vector<float> bounds;     // lowest [dim], highest [dim]
  };

  void read(const KvPool& pool, int layer, std::span<const PageId> pages);

  size_t dim_ = 0;
  Slab slabs_[kSlabs];
  Buffer scratch_;
  std::vector<PageId> missing_;
  std::vector<KvSlot> slots_;
  std::vector<float> keys_;
};

}  // namespace godwit
