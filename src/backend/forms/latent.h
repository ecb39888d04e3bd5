// K before RoPE and V in coordinates that the weights suggest: the singular vectors of the matrix that a KV head's K
// (or V) comes from, the strongest first (XQuant, Tomar et al., arXiv 2508.10395, in its form for GQA: with W = U S
// B^T, X U S is stored, and K or V rebuilt from it by B). The strong coordinates have more bits than the weak ones,
// which may also be left out.
//
// Deviations: a head has vectors of its own, not all heads of a layer together, since pages belong to heads. X U S is
// not taken from X but from K and V themselves, which is the same number: K is turned back by RoPE and multiplied by B.
// Codes of V have a scale for each coordinate of the page, as K's have, and not for each token: coordinates are as
// different as singular values are. X itself is not stored: for GQA it is wider than K and V together. Nor are
// differences between layers (XQuant-CL).
//
// RoPE and B are orthogonal. So the distance of a token's K (or V) from what is read is that of its coordinates: at
// most half a scale for each that has a code, and all of those that are left out; with numbers of f16 it is rounding.
//
// A position is the first one of the page and steps of up to 255 to the next ones. What is further ahead takes several
// tokens to be reached: K is then turned back too little, and by as much forth again. That is no error, but other
// coordinates than the weights suggest.
//
//   K  i32 first; u8 step[page_tokens]; then as V, of the keys
//   V  f16 scale[coded], f16 middle[coded]; codes[strong, page_tokens], codes[weak, page_tokens], rows of code_rows.h;
//   or
//      f16 numbers[strong, page_tokens] instead of codes of 16 bits
#pragma once

#include <vector>

#include "backend/page_form.h"

namespace godwit {

// Where the K or the V of a page has its parts. Coordinates [0, strong) have `bits` (2, 4, 8 or 16), and those up to
// kept `weak_bits` (2 or 4).
struct LatentHalf {
  size_t strong = 0, kept = 0, tokens = 0;
  int bits = 4, weak_bits = 2;

  int bits_of(size_t i) const { return i < strong ? bits : weak_bits; }
  bool has_code(size_t i) const { return bits_of(i) != 16; }
  size_t first_coded() const { return bits == 16 ? strong : 0; }
  size_t coded() const { return kept - first_coded(); }
  size_t bytes() const { return row_offset(kept); }
  const std::byte* row(const std::byte* half, size_t i) const { return half + row_offset(i); }
  const uint16_t* scale(const std::byte* half) const { return reinterpret_cast<const uint16_t*>(half) - first_coded(); }
  const uint16_t* middle(const std::byte* half) const { return scale(half) + coded(); }

 private:
  size_t row_offset(size_t i) const {
    const size_t before = i < strong ? i : strong;
    return 4 * coded() +
           tokens * (before * static_cast<size_t>(bits) + (i - before) * static_cast<size_t>(weak_bits)) / 8;
  }
};

struct LatentOptions {
  int k_bits = 4, v_bits = 4;  // 2, 4, 8 or 16
  size_t strong = 0;           // coordinates that have them, of K and of V
  int weak_bits = 2;           // of the others: 0 (they are left out), 2 or 4
};

// What a model's RoPE does to each table's keys.
struct LatentRope {
  bool pairs = false;        // it turns 2i and 2i + 1 together, not i and i + rotary_dim / 2
  size_t rotary_dim = 0;     // even; dimensions from there on stay
  std::vector<float> speed;  // [tables, rotary_dim / 2], angle per token
};

class LatentForm final : public PageForm {
 public:
  static constexpr size_t kMostDims = 256, kMostTokens = 64;

  // `bases`: of each table that of K, then that of V, [coordinates, head_dim], orthonormal.
  // REQUIRES: head_dim is a multiple of 16 and at most kMostDims; page_tokens is kMostTokens; strong <= head_dim.
  LatentForm(size_t head_dim, const LatentOptions& options, LatentRope rope, std::vector<float> bases);

  size_t tables() const override { return bases_.size() / (2 * head_dim() * head_dim()); }
  const LatentHalf& keys() const { return keys_; }
  const LatentHalf& values() const { return values_; }
  const std::byte* key_half(const std::byte* page) const { return page + head_bytes() + place_bytes(); }
  const std::byte* value_half(const std::byte* page) const { return page + k_bytes(); }
  const float* k_basis(uint32_t table) const { return &bases_[table * 2 * head_dim() * head_dim()]; }
  const float* v_basis(uint32_t table) const { return k_basis(table) + head_dim() * head_dim(); }
  // The same in bf16, for kernels that multiply it: [head_dim, coordinates], columns that are rounded up to 32 by
  // zeros.
  const uint16_t* k_columns(uint32_t table) const { return &columns_[table * 2 * head_dim() * column()]; }
  const uint16_t* v_columns(uint32_t table) const { return k_columns(table) + head_dim() * column(); }

  // Cosines and sines of what a page's tokens are turned by, [frequencies(), page_tokens] each, and whom they turn.
  size_t frequencies() const { return rope_.rotary_dim / 2; }
  void turns(const std::byte* page, float* cosine, float* sine) const;
  // Where tokens are neighbours: the turns of the first one, [frequencies()] each, and those from there on,
  // [frequencies(), page_tokens].
  bool has_neighbours(const std::byte* page) const;
  void first_turns(const std::byte* page, float* cosine, float* sine) const;
  const float* near_cosines(const std::byte* page) const { return turns_of(page).near_cos.data(); }
  const float* near_sines(const std::byte* page) const { return turns_of(page).near_sin.data(); }
  size_t first_of(size_t frequency) const { return rope_.pairs ? 2 * frequency : frequency; }
  size_t second_of(size_t frequency) const { return first_of(frequency) + (rope_.pairs ? 1 : frequencies()); }

 private:
  // Cosines and sines of whole numbers of tokens, for tables that are turned alike.
  struct Turns {
    std::vector<float> speed;
    std::vector<float> near_cos, near_sin;  // [frequencies, 64]: of 0, 1, 2 ...
    std::vector<float> far_cos, far_sin;    // [256, frequencies]: of 0, 64, 128 ...
    std::vector<float> last_cos, last_sin;  // [256, frequencies]: of 0, 64 * 256, 2 * 64 * 256 ...
  };
  const Turns& turns_of(const std::byte* page) const { return turns_[turns_of_[table_of(page)]]; }

  size_t column() const { return (head_dim() + 31) / 32 * 32; }
  size_t place_bytes() const { return sizeof(int32_t) + page_tokens(); }
  size_t key_bytes() const override { return place_bytes() + keys_.bytes(); }
  size_t value_bytes() const override { return values_.bytes(); }
  void seal_numbers(const PagePlace& place, const float* k, const float* v, std::byte* page) const override;
  float key_at(const std::byte* page, size_t token, size_t dim) const override;
  float value_at(const std::byte* page, size_t token, size_t dim) const override;
  void read_numbers(const std::byte* page, float* k, float* v) const override;

  int32_t first_position(const std::byte* page) const {
    int32_t first;
    std::memcpy(&first, page + head_bytes(), sizeof(first));
    return first;
  }
  const uint8_t* steps(const std::byte* page) const {
    return reinterpret_cast<const uint8_t*>(page + head_bytes() + sizeof(int32_t));
  }
  void add_turns(const float* speed);
  // Keys[head_dim, page_tokens] forth (1) or back (-1) by RoPE.
  void turn(const std::byte* page, float direction, float* keys) const;

  LatentHalf keys_, values_;
  LatentRope rope_;
  std::vector<float> bases_;
  std::vector<uint16_t> columns_;
  std::vector<Turns> turns_;
  std::vector<size_t> turns_of_;  // [tables]
};

}  // namespace godwit
