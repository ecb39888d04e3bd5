#include "backend/forms/gear.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "backend/kv_codes.h"
#include "base/check.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr int kIterations = 3;

uint16_t* writable(const uint16_t* at) {
  return const_cast<uint16_t*>(at);
}

// The first `count` places of numbers in the order that `before` says.
template <class Before>
void find_first(const std::vector<float>& numbers, size_t count, const Before& before, uint8_t* found) {
  size_t have = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    size_t at = have;
    while (at > 0 && before(i, found[at - 1])) --at;
    if (at == count) continue;
    have = std::min(have + 1, count);
    std::copy_backward(found + at, found + have - 1, found + have);
    found[at] = static_cast<uint8_t>(i);
  }
}

// Stores the extremes of numbers[length] and replaces them by one of the others, so that codes need not reach them. Of
// equal numbers the first are the smallest, and the last the largest.
void take_extremes(const GearHalf& at, size_t vector, std::vector<float>& numbers, std::byte* half) {
  const size_t n = at.extremes;
  if (n == 0) return;
  uint8_t least[GearForm::kMostExtremes + 1], most[GearForm::kMostExtremes];
  find_first(
      numbers, n + 1, [&](size_t a, size_t b) { return numbers[a] < numbers[b]; }, least);
  find_first(
      numbers, n, [&](size_t a, size_t b) { return numbers[a] >= numbers[b]; }, most);
  const float other = numbers[least[n]];
  for (size_t i = 0; i < 2 * n; ++i) {
    const uint8_t place = i < n ? least[i] : most[i - n];
    const_cast<uint8_t*>(at.place(half, vector))[i] = place;
    writable(at.extreme(half, vector))[i] = float_to_f16(numbers[place]);
    numbers[place] = other;
  }
}

// a . b, in sums that do not wait for each other; `count` is a multiple of 32.
double dot(const double* a, const double* b, size_t count) {
  double sums[8] = {};
  for (size_t i = 0; i < count; i += 8)
    for (size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  return std::accumulate(sums, sums + 8, 0.0);
}

// Takes from left[vectors, length] the product of a column and a row that holds most of it, as stored.
void take_factor(const GearHalf& at, size_t r, std::vector<double>& left, std::byte* half) {
  std::vector<double> a(at.vectors), b(at.length);
  const auto line = [&](size_t vector) { return &left[vector * at.length]; };
  const auto project = [&] {  // a := left b
    for (size_t i = 0; i < at.vectors; ++i) a[i] = dot(b.data(), line(i), at.length);
  };
  double most = 0;  // from the longest row on
  for (size_t i = 0; i < at.vectors; ++i) {
    const double square = dot(line(i), line(i), at.length);
    if (square <= most) continue;
    most = square;
    std::copy_n(line(i), at.length, b.begin());
  }
  for (int step = 0; step < kIterations; ++step) {
    project();
    std::fill(b.begin(), b.end(), 0.0);
    for (size_t i = 0; i < at.vectors; ++i)
      for (size_t j = 0; j < at.length; ++j) b[j] += a[i] * line(i)[j];
    const double length = std::sqrt(dot(b.data(), b.data(), at.length));
    for (double& x : b) x = length > 0 ? x / length : 0;
  }
  for (size_t j = 0; j < at.length; ++j) {
    writable(at.b(half, r))[j] = float_to_f16(static_cast<float>(b[j]));
    b[j] = f16_to_float(at.b(half, r)[j]);
  }
  project();
  const double square = dot(b.data(), b.data(), at.length);
  for (size_t i = 0; i < at.vectors; ++i) {
    const float best = square > 0 ? static_cast<float>(a[i] / square) : 0;
    writable(at.a(half, r))[i] = float_to_f16(best);
    for (size_t j = 0; j < at.length; ++j) line(i)[j] -= f16_to_float(at.a(half, r)[i]) * b[j];
  }
}

void seal_half(const GearHalf& at, const float* from, std::byte* half) {
  std::vector<float> numbers(at.length);
  std::vector<uint8_t> codes(at.length);
  std::vector<double> left(at.vectors * at.length);
  for (size_t i = 0; i < at.vectors; ++i) {
    std::copy_n(from + i * at.length, at.length, numbers.begin());
    take_extremes(at, i, numbers, half);
    const KvCodeScale scale = kv_encode(at.bits, numbers.data(), at.length, codes.data());
    writable(at.scale(half))[i] = scale.scale;
    writable(at.middle(half))[i] = scale.middle;
    write_code_row(codes.data(), at.bits, at.length, const_cast<std::byte*>(at.codes(half, i)));
    for (size_t j = 0; j < at.length; ++j)
      left[i * at.length + j] = double{numbers[j]} - kv_code_number(at.bits, codes[j], scale);
    for (size_t e = 0; e < 2 * at.extremes; ++e) left[i * at.length + at.place(half, i)[e]] = 0;
  }
  for (size_t r = 0; r < at.rank; ++r) take_factor(at, r, left, half);
}

float number_at(const GearHalf& at, const std::byte* half, size_t vector, size_t place) {
  for (size_t e = 0; e < 2 * at.extremes; ++e)
    if (at.place(half, vector)[e] == place) return f16_to_float(at.extreme(half, vector)[e]);
  float number = kv_code_number(at.bits, code_in_row(at.codes(half, vector), at.bits, at.length, place),
                                {at.scale(half)[vector], at.middle(half)[vector]});
  for (size_t r = 0; r < at.rank; ++r)
    number += f16_to_float(at.a(half, r)[vector]) * f16_to_float(at.b(half, r)[place]);
  return number;
}

}  // namespace

GearForm::GearForm(size_t head_dim, size_t page_tokens, const GearOptions& options)
    : PageForm(Kind::kGear, head_dim, page_tokens),
      keys_{head_dim, page_tokens, options.k_bits, options.rank, options.extremes},
      values_{page_tokens, head_dim, options.v_bits, options.rank, options.extremes} {
  GODWIT_CHECK(options.rank <= kMostRank && options.extremes <= kMostExtremes);
  for (const GearHalf& half : {keys_, values_}) {
    GODWIT_CHECK(half.bits == 2 || half.bits == 4);
    GODWIT_CHECK(half.length <= 256 && half.length % (half.bits == 2 ? 64 : 32) == 0);
  }
}

void GearForm::seal_numbers(const PagePlace&, const float* k, const float* v, std::byte* page) const {
  seal_half(keys_, k, page + head_bytes());
  seal_half(values_, v, page + k_bytes());
}

float GearForm::key_at(const std::byte* page, size_t token, size_t dim) const {
  return number_at(keys_, page + head_bytes(), dim, token);
}

float GearForm::value_at(const std::byte* page, size_t token, size_t dim) const {
  return number_at(values_, page + k_bytes(), token, dim);
}

}  // namespace godwit
