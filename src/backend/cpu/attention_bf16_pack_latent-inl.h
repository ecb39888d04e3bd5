// Pages of a LatentForm as operands of products of bf16 pairs. The unit that multiplies those also rebuilds the pages,
// from coordinates and a basis that are rounded to bf16, too. Included by attention_bf16.cpp alone, inside the region
// compiled for AVX-512 with BF16.
#pragma once

inline constexpr size_t kLatentTokens = LatentForm::kMostTokens;

// What these functions read; others go by way of fp32.
inline bool packs(const LatentForm& form, const std::byte* page) {
  return form.keys().kept % 2 == 0 && form.has_neighbours(page);
}

// Coordinates of 2 or 4 bits, two lines of which become row i of each block of the operand `to`.
template <int kBits>
HWY_INLINE void pack_coded_pair(const std::byte* first, const std::byte* second, const float* scale,
                                const float* middle, size_t depth, uint16_t* to) {
  constexpr size_t kBytes = kLatentTokens * kBits / 8;
  const __m512i numbers = pair_numbers<kBits>(scale, middle);
  for (size_t byte = 0; byte < kBytes; byte += 16) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + byte));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second + byte));
    __m512i words = _mm512_cvtepu8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)));
    for (size_t token = byte; token < kLatentTokens; token += kBytes, words = _mm512_srli_epi16(words, kBits))
      _mm512_store_si512(to + token * depth, lowest_numbers<kBits>(words, numbers));
  }
}

// 16 of a coordinate's numbers, whatever its bits.
HWY_INLINE __m512 load_coordinate(const LatentHalf& at, const std::byte* half, size_t i, size_t token, float scale,
                                  float middle) {
  const std::byte* row = at.row(half, i);
  if (!at.has_code(i)) return _mm512_cvtph_ps(load_half(row + 2 * token));
  const int bits = at.bits_of(i);
  alignas(16) uint8_t codes[16];
  for (size_t t = 0; t < 16; ++t) codes[t] = code_in_row(row, bits, kLatentTokens, token + t);
  const __m512 level =
      _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes)))),
                    _mm512_set1_ps(kv_top_level(bits)));
  return _mm512_fmadd_ps(level, _mm512_set1_ps(scale), _mm512_set1_ps(middle));
}

// The operand [depth, 64] of a half's coordinates, whose scales and middles are [depth]; rows past them become zeros.
// REQUIRES: the number of coordinates is even.
inline void pack_coordinates(const LatentHalf& at, const std::byte* half, const float* scale, const float* middle,
                             size_t depth, uint16_t* to, Ahead& ahead) {
  for (size_t i = 0; i < depth; i += 2, to += 32) {
    ahead.step();
    const int bits = i < at.kept && at.bits_of(i) == at.bits_of(i + 1) ? at.bits_of(i) : 0;
    if (bits == 4) {
      pack_coded_pair<4>(at.row(half, i), at.row(half, i + 1), scale + i, middle + i, depth, to);
    } else if (bits == 2) {
      pack_coded_pair<2>(at.row(half, i), at.row(half, i + 1), scale + i, middle + i, depth, to);
    } else {
      for (size_t token = 0; token < kLatentTokens; token += 16) {
        __m512 lines[2] = {};
        for (size_t j = 0; i < at.kept && j < 2; ++j)
          lines[j] = load_coordinate(at, half, i + j, token, scale[i + j], middle[i + j]);
        _mm512_store_si512(to + token * depth, _mm512_permutexvar_epi16(zip_order(), to_bf16(lines[0], lines[1])));
      }
    }
  }
}

// Scales or middles of a half as fp32, `number` for coordinates that are numbers, 0 up to depth.
inline void load_latent_scales(const LatentHalf& at, const uint16_t* from, float number, size_t depth, float* to) {
  for (size_t i = 0; i < depth; i += 16) {
    const auto mask = [&](size_t end) {
      return static_cast<__mmask16>(end <= i ? 0 : end - i < 16 ? (1u << (end - i)) - 1 : 0xffff);
    };
    const __mmask16 plain = mask(at.first_coded()), coded = mask(at.kept) & ~plain;
    const __m512 numbers = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(coded, from + i));
    _mm512_store_ps(to + i, _mm512_mask_mov_ps(numbers, plain, _mm512_set1_ps(number)));
  }
}

// Turns keys[dims, 64] by RoPE. REQUIRES: the page's tokens are neighbours.
inline void turn_latent_keys(const LatentForm& form, const std::byte* page, float* keys) {
  alignas(64) float cosine[LatentForm::kMostDims / 2], sine[LatentForm::kMostDims / 2];
  form.first_turns(page, cosine, sine);
  const float *near_cos = form.near_cosines(page), *near_sin = form.near_sines(page);
  for (size_t f = 0; f < form.frequencies(); ++f, near_cos += kLatentTokens, near_sin += kLatentTokens) {
    float *a = keys + form.first_of(f) * kLatentTokens, *b = keys + form.second_of(f) * kLatentTokens;
    const __m512 c = _mm512_set1_ps(cosine[f]), s = _mm512_set1_ps(sine[f]);
    for (size_t t = 0; t < kLatentTokens; t += 16) {
      const __m512 near_c = _mm512_loadu_ps(near_cos + t), near_s = _mm512_loadu_ps(near_sin + t);
      const __m512 cos = _mm512_fmsub_ps(c, near_c, _mm512_mul_ps(s, near_s));
      const __m512 sin = _mm512_fmadd_ps(s, near_c, _mm512_mul_ps(c, near_s));
      const __m512 x = _mm512_load_ps(a + t), y = _mm512_load_ps(b + t);
      _mm512_store_ps(a + t, _mm512_fmsub_ps(x, cos, _mm512_mul_ps(y, sin)));
      _mm512_store_ps(b + t, _mm512_fmadd_ps(x, sin, _mm512_mul_ps(y, cos)));
    }
  }
}

// values[dims, 64] become the operand [depth, dims], whose depth are tokens.
inline void pack_latent_values(const float* values, size_t dims, size_t depth, uint16_t* to, Ahead& ahead) {
  for (size_t dim = 0; dim < dims; dim += 16, to += 16 * depth)
    for (size_t t = 0; t < kLatentTokens; t += 32) {
      __m512i pairs[16];
      for (size_t i = 0; i < 16; ++i) {
        const float* line = values + (dim + i) * kLatentTokens + t;
        pairs[i] = to_bf16(_mm512_load_ps(line), _mm512_load_ps(line + 16));
      }
      transpose(pairs);
      for (size_t i = 0; i < 16; ++i) _mm512_store_si512(to + (t / 2 + i) * 32, pairs[i]);
      ahead.step();
    }
}
