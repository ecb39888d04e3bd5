#include "backend/forms/sorted.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace godwit {
namespace {

constexpr int kLowest = -40;  // below the smallest number of f16, however many bits

// The smallest power of two whose multiples up to `top` are within half of it of every number up to `largest`.
int exponent_for(float largest, float top) {
  if (largest == 0) return kLowest;
  int exponent;
  const float fraction = std::frexp(largest / (top + 0.5f), &exponent);
  return std::max(kLowest, fraction == 0.5f ? exponent - 1 : exponent);
}

}  // namespace

SortedForm::SortedForm(size_t head_dim, size_t page_tokens, const SortedOptions& options)
    : PageForm(Kind::kSorted, head_dim, page_tokens), options_(options) {
  GODWIT_CHECK(head_dim % 32 == 0 && head_dim <= 256 && page_tokens % 32 == 0 && page_tokens <= 256);
  for (int bits : {options.k_bits, options.v_bits}) GODWIT_CHECK(bits == 4 || bits == 8);
}

size_t SortedForm::key_bytes() const {
  return head_dim() + head_dim() / kBlock * page_tokens() + head_dim() * code_row_bytes(options_.k_bits, page_tokens());
}

size_t SortedForm::value_bytes() const {
  return page_tokens() * (head_dim() / kBlock + code_row_bytes(options_.v_bits, head_dim()));
}

void SortedForm::seal_numbers(const PagePlace&, const float* k, const float* v, std::byte* page) const {
  const size_t dims = head_dim(), tokens = page_tokens(), blocks = dims / kBlock;
  auto* order = const_cast<uint8_t*>(this->order(page));
  std::iota(order, order + dims, uint8_t{0});
  if (options_.sorts) {
    std::vector<float> largest(dims);
    for (size_t dim = 0; dim < dims; ++dim)
      for (size_t token = 0; token < tokens; ++token)
        largest[dim] = std::max(largest[dim], std::abs(k[dim * tokens + token]));
    std::stable_sort(order, order + dims, [&](uint8_t a, uint8_t b) { return largest[a] > largest[b]; });
  }
  // number(i) of a block and put(i, code) for each.
  const auto encode = [](float top, const auto& number, const auto& put) {
    float largest = 0;
    for (size_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(number(i)));
    const int exponent = exponent_for(largest, top);
    for (size_t i = 0; i < kBlock; ++i)
      put(i, static_cast<uint8_t>(std::clamp(std::nearbyint(std::ldexp(number(i), -exponent)), -top, top) + top));
    return static_cast<int8_t>(exponent);
  };
  std::vector<uint8_t> codes(std::max(dims, tokens) * tokens);
  auto* k_exponents = const_cast<int8_t*>(this->k_exponents(page));
  for (size_t block = 0; block < blocks; ++block)
    for (size_t token = 0; token < tokens; ++token)
      k_exponents[block * tokens + token] = encode(
          top(options_.k_bits), [&](size_t i) { return k[order[block * kBlock + i] * tokens + token]; },
          [&](size_t i, uint8_t code) { codes[(block * kBlock + i) * tokens + token] = code; });
  auto* to = const_cast<std::byte*>(k_codes(page));
  for (size_t i = 0; i < dims; ++i, to += code_row_bytes(options_.k_bits, tokens))
    write_code_row(&codes[i * tokens], options_.k_bits, tokens, to);

  auto* v_exponents = const_cast<int8_t*>(this->v_exponents(page));
  to = const_cast<std::byte*>(v_codes(page));
  for (size_t token = 0; token < tokens; ++token, to += code_row_bytes(options_.v_bits, dims)) {
    for (size_t block = 0; block < blocks; ++block)
      v_exponents[token * blocks + block] = encode(
          top(options_.v_bits), [&](size_t i) { return v[token * dims + block * kBlock + i]; },
          [&](size_t i, uint8_t code) { codes[block * kBlock + i] = code; });
    write_code_row(codes.data(), options_.v_bits, dims, to);
  }
}

float SortedForm::key_at(const std::byte* page, size_t token, size_t dim) const {
  const uint8_t* order = this->order(page);
  const auto row = static_cast<size_t>(std::find(order, order + head_dim(), dim) - order);
  const uint8_t code = code_in_row(k_codes(page) + row * code_row_bytes(options_.k_bits, page_tokens()),
                                   options_.k_bits, page_tokens(), token);
  return std::ldexp(static_cast<float>(code) - top(options_.k_bits),
                    k_exponents(page)[row / kBlock * page_tokens() + token]);
}

float SortedForm::value_at(const std::byte* page, size_t token, size_t dim) const {
  const uint8_t code = code_in_row(v_codes(page) + token * code_row_bytes(options_.v_bits, head_dim()), options_.v_bits,
                                   head_dim(), dim);
  return std::ldexp(static_cast<float>(code) - top(options_.v_bits),
                    v_exponents(page)[token * (head_dim() / kBlock) + dim / kBlock]);
}

}  // namespace godwit
