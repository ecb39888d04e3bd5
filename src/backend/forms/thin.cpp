#include "backend/forms/thin.h"

#include <numeric>

#include "base/check.h"
#include "tensor/half.h"

namespace godwit {

ThinForm::ThinForm(size_t head_dim, size_t page_tokens, size_t kept, std::vector<float> weights)
    : PageForm(Kind::kThin, head_dim, page_tokens), kept_(kept), weights_(std::move(weights)) {
  GODWIT_CHECK(head_dim % 16 == 0 && kept >= 1 && kept <= head_dim && weights_.size() % head_dim == 0);
}

void ThinForm::seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const {
  const size_t dims = head_dim(), tokens = page_tokens();
  std::vector<double> importance(dims);
  for (size_t dim = 0; dim < dims; ++dim) {
    for (size_t token = 0; token < tokens; ++token) {
      const double x = k[dim * tokens + token];
      importance[dim] += x * x;
    }
    if (!weights_.empty()) importance[dim] *= weights_[place.table * dims + dim];
  }
  std::vector<size_t> order(dims);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return importance[a] > importance[b]; });
  std::byte* mask = page + head_bytes();
  std::fill_n(mask, dims / 8, std::byte{});
  for (size_t i = 0; i < kept_; ++i) mask[order[i] / 8] |= static_cast<std::byte>(1u << order[i] % 8);
  auto* to = const_cast<uint16_t*>(k_numbers(page));
  for (size_t dim = 0; dim < dims; ++dim)
    for (size_t token = 0; token < tokens && keeps(page, dim); ++token) *to++ = float_to_f16(k[dim * tokens + token]);
  to = const_cast<uint16_t*>(v_numbers(page));
  for (size_t i = 0; i < tokens * dims; ++i) to[i] = float_to_f16(v[i]);
}

float ThinForm::key_at(const std::byte* page, size_t token, size_t dim) const {
  if (!keeps(page, dim)) return 0;
  size_t row = 0;
  for (size_t before = 0; before < dim; ++before) row += keeps(page, before) ? 1 : 0;
  return f16_to_float(k_numbers(page)[row * page_tokens() + token]);
}

float ThinForm::value_at(const std::byte* page, size_t token, size_t dim) const {
  return f16_to_float(v_numbers(page)[token * head_dim() + dim]);
}

}  // namespace godwit
