// Bf16Walk's way from a page to operands. Included by attention_bf16.cpp alone, inside the region compiled for AVX-512
// with BF16.
#pragma once

// K and V become operands. False: values that some row does not see are infinite or NaN.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::pack(const PageView& page, Visibility seen, size_t tokens) {
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t columns = round_up(tokens, 16);
  using Number = std::conditional_t<kCodes, F16, T>;
  if constexpr (kCodes) {
    const bool codes = !page.open && args_.format.has_codes();
    rank_ = 0;
    late_ = false;
    scaled_values_ = codes;
    score_kind_ = codes && !args_.format.k_by_dim ? Scores::kScaled : Scores::kPlain;
    if (codes) {
      pack_key_codes(page.k, tokens);
      pack_value_codes(page.k, tokens);
      return true;
    }
    if (!page.open && args_.format.sealed_form != nullptr)
      return pack_form(page.k, tokens) || seen == Visibility::kAll ||
             (!late_ && all_finite(values_, 2 * at_.values));  // what is packed later counts as not finite
  }
  if (kCodes && !page.open) {
    pack_sparse(PageHalf::keys(args_.format), page.k, at_.depth, kept_, keys_, ahead_);
    pack_sparse(PageHalf::values(args_.format), page.k, at_.slots, kept_, values_, ahead_);
  } else {
    const auto *k = reinterpret_cast<const Number*>(page.k), *v = reinterpret_cast<const Number*>(page.v);
    pack_operand(k, head_dim, at_.columns, columns, at_.depth, keys_, ahead_);
    pack_operand(v, tokens, head_dim, at_.width, at_.slots, values_, ahead_);
  }
  return seen == Visibility::kAll || all_finite(values_, 2 * at_.values);
}

// True: all numbers are finite.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::pack_form(const std::byte* page, size_t tokens) {
  const PageForm& form = *args_.format.sealed_form;
  if (form.kind() == PageForm::Kind::kGear) {
    pack_gear_page(static_cast<const GearForm&>(form), page, tokens);
    return !form.any_lost(page);
  }
  if (form.kind() == PageForm::Kind::kSorted) {
    pack_sorted_page(static_cast<const SortedForm&>(form), page, tokens);
    return !form.any_lost(page);
  }
  if (pack_keys_directly(form, page)) return !form.any_lost(page);
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  form_readers().keys(form, page, read_);
  pack_operand(read_, head_dim, at_.columns, round_up(tokens, 16), at_.depth, keys_, ahead_);
  form_readers().values(form, page, tokens, head_dim, read_);
  pack_operand(read_, tokens, head_dim, at_.width, at_.slots, values_, ahead_);
  return false;
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_gear_page(const GearForm& form, const std::byte* page, size_t tokens) {
  rank_ = form.keys().rank;
  if (rank_ > 0) score_kind_ = Scores::kRanked;
  std::swap(value_sides_.b, spare_sides_);  // what waits still reads the last page's
  pack_gear(form.keys(), page + form.head_bytes(), form.head_dim(), at_.depth, key_sides_, keys_, ahead_);
  pack_gear(form.values(), page + form.k_bytes(), value_lines(tokens), at_.slots, value_sides_, values_, ahead_);
  pack_lost(form, page, tokens);
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_sorted_page(const SortedForm& form, const std::byte* page, size_t tokens) {
  if (form.k_bits() == 4)
    pack_sorted_keys<4>(form, page, at_.depth, keys_, ahead_);
  else
    pack_sorted_keys<8>(form, page, at_.depth, keys_, ahead_);
  if (form.v_bits() == 4)
    pack_sorted_values<4>(form, page, value_lines(tokens), at_.slots, values_, ahead_);
  else
    pack_sorted_values<8>(form, page, value_lines(tokens), at_.slots, values_, ahead_);
  pack_lost(form, page, tokens);
}

// Tokens that had a NaN.
template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_lost(const PageForm& form, const std::byte* page, size_t tokens) {
  if (!form.any_lost(page)) return;
  for (size_t token = 0; token < tokens; ++token)
    if (form.is_lost(page, token)) fill_slot(values_, token, kBf16Nan);
}

// What need not be there before the products of keys: the values.
template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_late(const std::byte* page, size_t tokens) {
  const PageForm& form = *args_.format.sealed_form;
  pack_values_directly(form, page);
  pack_lost(form, page, tokens);
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_key_codes(const std::byte* page, size_t tokens) {
  const PageHalf half = PageHalf::keys(args_.format);
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t columns = round_up(tokens, 16);
  const float *scale = nullptr, *middle = nullptr;
  if (half.by_dim()) {
    load_dim_scales(half, page, dim_scale_, dim_middle_);
    scale = dim_scale_;
    middle = dim_middle_;
  } else {
    load_scales(half, page, at_.columns, tokens, columns, key_scale_, key_middle_);
  }
  if (half.bits() == 8)
    pack_codes8(page, head_dim, at_.columns, columns, at_.depth, keys_, ahead_);
  else if (half.bits() == 4)
    godwit::cpu::pack_key_codes<4>(page, head_dim, at_.columns, columns, at_.depth, scale, middle, keys_, ahead_);
  else
    godwit::cpu::pack_key_codes<2>(page, head_dim, at_.columns, columns, at_.depth, scale, middle, keys_, ahead_);
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_value_codes(const std::byte* page, size_t tokens) {
  const PageHalf half = PageHalf::values(args_.format);
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t lines = value_lines(tokens);
  const std::byte* from = page + half.offset();
  load_scales(half, page, at_.columns, tokens, round_up(tokens, 16), value_scale_, value_middle_);
  if (half.bits() == 8)
    pack_codes8(from, lines, head_dim, at_.width, at_.slots, values_, ahead_);
  else if (half.bits() == 4)
    godwit::cpu::pack_value_codes<4>(from, lines, head_dim, at_.slots, values_, ahead_);
  else
    godwit::cpu::pack_value_codes<2>(from, lines, head_dim, at_.slots, values_, ahead_);
}
