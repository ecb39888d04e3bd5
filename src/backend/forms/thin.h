// Keys without the channels that matter least to scores: a channel's importance is the mean square of its keys in the
// page times that of the queries that meet it (ThinK, Xu et al., arXiv 2407.21018). Values stay whole.
//
// Deviations: channels are chosen page by page, not once per prompt; and what is known of the queries is a table that
// was fitted beforehand, not the last 32 queries of the prompt: they differ with chunks, and with whoever shares the
// page. Without a table all channels of the queries count alike.
//
// The error of a score is at most |q_dropped| |k_dropped|; with every channel kept, numbers are those of f16.
//
//   K  u8 mask[head_dim / 8], from the lowest bit on; f16 numbers[kept, page_tokens], channels in order
//   V  f16 numbers[page_tokens, head_dim]
#pragma once

#include <vector>

#include "backend/page_form.h"

namespace godwit {

class ThinForm final : public PageForm {
 public:
  // `weights`: of each table mean squares [head_dim], not negative; may be empty.
  // REQUIRES: head_dim is a multiple of 16; 1 <= kept <= head_dim.
  ThinForm(size_t head_dim, size_t page_tokens, size_t kept, std::vector<float> weights);

  size_t tables() const override { return weights_.size() / head_dim(); }
  bool keeps(const std::byte* page, size_t dim) const {
    return (static_cast<unsigned>(page[head_bytes() + dim / 8]) >> (dim % 8) & 1) != 0;
  }
  const uint16_t* k_numbers(const std::byte* page) const {
    return reinterpret_cast<const uint16_t*>(page + head_bytes() + head_dim() / 8);
  }
  const uint16_t* v_numbers(const std::byte* page) const { return reinterpret_cast<const uint16_t*>(page + k_bytes()); }

 private:
  size_t key_bytes() const override { return head_dim() / 8 + kept_ * page_tokens() * sizeof(uint16_t); }
  size_t value_bytes() const override { return page_tokens() * head_dim() * sizeof(uint16_t); }
  void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const override;
  float key_at(const std::byte* page, size_t token, size_t dim) const override;
  float value_at(const std::byte* page, size_t token, size_t dim) const override;

  size_t kept_;
  std::vector<float> weights_;  // [tables, head_dim]
};

}  // namespace godwit
