#include "backend/page_form.h"

#include "base/check.h"
#include "tensor/half.h"

namespace godwit {

void PageForm::seal(uint32_t table, float* k, float* v, std::byte* page) const {
  GODWIT_CHECK(tables() == 0 || table < tables(), "table {} of {}", table, tables());
  const uint32_t stored = tables() == 0 ? 0 : table;
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
  seal_numbers(stored, k, v, page);
}

}  // namespace godwit
