// Bf16Walk's way from pages of a ThinForm, a ProductForm and a LatentForm to operands. Included by attention_bf16.cpp
// alone, after the walk.
#pragma once

// False: the page goes by way of fp32.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::pack_directly(const PageForm& form, const std::byte* page, size_t tokens) {
  switch (form.kind()) {
    case PageForm::Kind::kThin:
      pack_thin_page(static_cast<const ThinForm&>(form), page);
      break;
    case PageForm::Kind::kProduct: {
      const auto& product = static_cast<const ProductForm&>(form);
      if (!packs(product)) return false;
      pack_product_keys(product, page, at_.depth, keys_, ahead_);
      pack_product_values(product, page, at_.slots, values_, ahead_);
      break;
    }
    case PageForm::Kind::kLatent:
      if (!packs(static_cast<const LatentForm&>(form), page)) return false;
      pack_latent_page(static_cast<const LatentForm&>(form), page);
      break;
    default:
      return false;
  }
  for (size_t token = 0; token < tokens && form.any_lost(page); ++token)
    if (form.is_lost(page, token)) fill_slot(values_, token, kBf16Nan);
  return true;
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_thin_page(const ThinForm& form, const std::byte* page) {
  pack_thin_keys(form, page, at_.depth, keys_, ahead_);
  pack_operand(reinterpret_cast<const F16*>(form.v_numbers(page)), at_.columns, form.head_dim(), at_.width, at_.slots,
               values_, ahead_);
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_latent_page(const LatentForm& form, const std::byte* page) {
  const uint32_t table = PageForm::table_of(page);
  const size_t dims = form.head_dim();
  rebuild(form.keys(), form.key_half(page), form.k_columns(table));
  turn_latent_keys(form, page, read_);
  pack_operand(read_, dims, at_.columns, at_.columns, at_.depth, keys_, ahead_);
  rebuild(form.values(), form.value_half(page), form.v_columns(table));
  pack_latent_values(read_, dims, at_.slots, values_, ahead_);
}

// The numbers of a half, [head_dim, page_tokens], become read_.
template <class T, class Engine>
void Bf16Walk<T, Engine>::rebuild(const LatentHalf& at, const std::byte* half, const uint16_t* columns) {
  const size_t depth = round_up(at.kept, 32);
  load_latent_scales(at, at.scale(half), 1, depth, dim_scale_);
  load_latent_scales(at, at.middle(half), 0, depth, dim_middle_);
  pack_coordinates(at, half, dim_scale_, dim_middle_, depth, coordinates_, ahead_);
  Ahead nothing;  // fetching would be in the way of the basis, which comes from the second cache
  engine_.multiply({columns, at_.depth, coordinates_, depth, depth, at_.columns, read_, at_.columns},
                   static_cast<size_t>(shape_.head_dim), nothing);
}
