// Bf16Walk's way from pages of a ThinForm, a ProductForm and a LatentForm to operands. Included by attention_bf16.cpp
// alone, after the walk.
#pragma once

// False: the page goes by way of fp32. Its values come later, by pack_values_directly(): the tile unit then sleeps
// less.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::pack_keys_directly(const PageForm& form, const std::byte* page) {
  switch (form.kind()) {
    case PageForm::Kind::kThin:
      pack_thin_keys(static_cast<const ThinForm&>(form), page, at_.depth, keys_, ahead_);
      break;
    case PageForm::Kind::kProduct: {
      const auto& product = static_cast<const ProductForm&>(form);
      if (!packs(product)) return false;
      pack_product_keys(product, page, at_.depth, keys_, ahead_);
      break;
    }
    case PageForm::Kind::kLatent: {
      const auto& latent = static_cast<const LatentForm&>(form);
      if (!packs(latent, page)) return false;
      rebuild(latent.keys(), latent.key_half(page), latent.k_columns(PageForm::table_of(page)));
      turn_latent_keys(latent, page, read_);
      pack_operand(read_, form.head_dim(), at_.columns, at_.columns, at_.depth, keys_, ahead_);
      break;
    }
    case PageForm::Kind::kGear:
    case PageForm::Kind::kSorted:
      return false;
  }
  late_ = true;
  return true;
}

template <class T, class Engine>
void Bf16Walk<T, Engine>::pack_values_directly(const PageForm& form, const std::byte* page) {
  switch (form.kind()) {
    case PageForm::Kind::kThin: {
      const auto* numbers = reinterpret_cast<const F16*>(static_cast<const ThinForm&>(form).v_numbers(page));
      pack_operand(numbers, at_.columns, form.head_dim(), at_.width, at_.slots, values_, ahead_);
      break;
    }
    case PageForm::Kind::kProduct:
      pack_product_values(static_cast<const ProductForm&>(form), page, at_.slots, values_, ahead_);
      break;
    case PageForm::Kind::kLatent: {
      const auto& latent = static_cast<const LatentForm&>(form);
      rebuild(latent.values(), latent.value_half(page), latent.v_columns(PageForm::table_of(page)));
      pack_latent_values(read_, form.head_dim(), at_.slots, values_, ahead_);
      break;
    }
    case PageForm::Kind::kGear:
    case PageForm::Kind::kSorted:
      GODWIT_CHECK(false, "their values are packed with their keys");
  }
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
