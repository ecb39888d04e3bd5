#include "attn/page_bounds.h"

#include <algorithm>

namespace godwit {
namespace {

constexpr size_t kPagesAtOnce = 16;

}  // namespace

void PageBounds::update(const KvPool& pool, int layer, std::span<const PageRef> pages) {
  dim_ = static_cast<size_t>(pool.format().head_dim);
  missing_.clear();
  for (const PageRef& page : pages) {
    GODWIT_CHECK(page.count == static_cast<uint32_t>(pool.format().page_tokens));
    Slab& slab = slabs_[page_slab(page.page)];
    const size_t index = page_index(page.page);
    if (index >= slab.stamps.size()) {
      slab.stamps.resize(index + 1);
      slab.bounds.resize(slab.stamps.size() * 2 * dim_);
    }
    if (slab.stamps[index] != pool.stamp(page.page)) missing_.push_back(page.page);
  }
  for (size_t i = 0; i < missing_.size(); i += kPagesAtOnce)
    read(pool, layer, std::span(missing_).subspan(i, std::min(kPagesAtOnce, missing_.size() - i)));
}

void PageBounds::read(const KvPool& pool, int layer, std::span<const PageId> pages) {
  const auto page_tokens = static_cast<uint32_t>(pool.format().page_tokens);
  Backend& backend = pool.backend();
  if (scratch_.bytes == 0) {
    auto memory = backend.allocate(2 * kPagesAtOnce * page_tokens * dim_ * sizeof(float));
    GODWIT_CHECK(memory.has_value(), "no memory for the keys of {} pages", kPagesAtOnce);
    scratch_ = std::move(*memory);
  }
  slots_.clear();
  for (PageId page : pages)
    for (uint32_t slot = 0; slot < page_tokens; ++slot) slots_.push_back({page, slot});
  const auto rows = static_cast<int64_t>(slots_.size()), columns = static_cast<int64_t>(dim_);
  const Tensor k(scratch_.data(), DType::kF32, {rows, columns});
  const Tensor v(scratch_.data() + k.bytes(), DType::kF32, {rows, columns});
  backend.kv_read({.format = pool.format(layer),
                   .slab = pool.slab(layer),
                   .slots = slots_,
                   .k = k,
                   .v = v,
                   .open_slab = pool.open_slab()});
  keys_.resize(slots_.size() * dim_);
  backend.download(std::as_writable_bytes(std::span(keys_)), k.data);
  const float* key = keys_.data();
  for (PageId page : pages) {
    Slab& slab = slabs_[page_slab(page)];
    float *lowest = slab.bounds.data() + page_index(page) * 2 * dim_, *highest = lowest + dim_;
    std::copy_n(key, dim_, lowest);
    std::copy_n(key, dim_, highest);
    for (uint32_t slot = 0; slot < page_tokens; ++slot, key += dim_) {
      for (size_t d = 0; d < dim_; ++d) {
        lowest[d] = std::min(lowest[d], key[d]);
        highest[d] = std::max(highest[d], key[d]);
      }
    }
    slab.stamps[page_index(page)] = pool.stamp(page);
  }
}

float PageBounds::score(PageId page, std::span<const float> q) const {
  const float *lowest = slabs_[page_slab(page)].bounds.data() + page_index(page) * 2 * dim_, *highest = lowest + dim_;
  float sums[16] = {};  // that many chains of additions, which the compiler makes vectors of
  size_t d = 0;
  for (; d + 16 <= dim_; d += 16)
    for (size_t i = 0; i < 16; ++i) sums[i] += std::max(q[d + i] * lowest[d + i], q[d + i] * highest[d + i]);
  float sum = 0;
  for (; d < dim_; ++d) sum += std::max(q[d] * lowest[d], q[d] * highest[d]);
  for (float part : sums) sum += part;
  return sum;
}

}  // namespace godwit
