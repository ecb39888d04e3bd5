// Keys of a ThinForm as operands of products of bf16 pairs; its values are numbers of f16.
// Included by attention_bf16.cpp alone, inside the region compiled for AVX-512 with BF16.
#pragma once

alignas(64) inline constexpr F16 kNoChannel[kMaxPageTokens] = {};

// The operand [depth, page_tokens]; channels that the page does without are zeros. Which ones these are nobody can
// predict: lines are chosen without branches.
inline void pack_thin_keys(const ThinForm& form, const std::byte* page, size_t depth, uint16_t* to, Ahead& ahead) {
  const __m512i zip = zip_order();
  const size_t tokens = form.page_tokens();
  const auto* next = reinterpret_cast<const F16*>(form.k_numbers(page));
  for (size_t dim = 0; dim < form.head_dim(); dim += 2, to += 32) {
    const F16* lines[2];
    for (size_t i = 0; i < 2; ++i) {
      const bool keeps = form.keeps(page, dim + i);
      lines[i] = keeps ? next : kNoChannel;
      next += tokens * size_t{keeps};
    }
    for (size_t token = 0; token < tokens; token += 16) {
      if (token % 32 == 0) ahead.step();
      const __m512i both = join_lines(load_line(lines[0] + token), load_line(lines[1] + token), F16());
      _mm512_store_si512(to + token * depth, _mm512_permutexvar_epi16(zip, both));
    }
  }
}
