#include "backend/page_form.h"

#include "base/check.h"
#include "tensor/half.h"

namespace godwit {

void PageForm::seal(const PagePlace& place, float* k, float* v, std::byte* page) const {
  GODWIT_CHECK(tables() == 0 || place.table < tables(), "table {} of {}", place.table, tables());
  const uint32_t stored = tables() == 0 ? 0 : place.table;
  std::memcpy(page, &stored, sizeof(stored));
  std::byte* lost = page + sizeof(stored);
  std::fill_n(lost, page_tokens_ / 8, std::byte{});
  for (size_t token = 0; token < page_tokens_; ++token) {
    bool nan = false;
    const auto bound = [&](float& x) {
      nan |= x != x;
      x = std::clamp(x, -kF16Max, kF16Max);
    };
    for (size_t dim = 0; dim < head_dim_; ++dim) bound(k[dim * page_tokens_ + token]);
    for (size_t dim = 0; dim < head_dim_; ++dim) bound(v[token * head_dim_ + dim]);
    if (!nan) continue;
    lost[token / 8] |= static_cast<std::byte>(1u << token % 8);
    for (size_t dim = 0; dim < head_dim_; ++dim) k[dim * page_tokens_ + token] = v[token * head_dim_ + dim] = 0;
  }
  seal_numbers(place, k, v, page);
}

void PageForm::read(const std::byte* page, float* k, float* v) const {
  read_numbers(page, k, v);
  for (size_t token = 0; token < page_tokens_; ++token)
    if (is_lost(page, token)) std::fill_n(v + token * head_dim_, head_dim_, std::numeric_limits<float>::quiet_NaN());
}

void PageForm::read_numbers(const std::byte* page, float* k, float* v) const {
  for (size_t token = 0; token < page_tokens_; ++token)
    for (size_t dim = 0; dim < head_dim_; ++dim) {
      k[dim * page_tokens_ + token] = key_at(page, token, dim);
      v[token * head_dim_ + dim] = value_at(page, token, dim);
    }
}

}  // namespace godwit
