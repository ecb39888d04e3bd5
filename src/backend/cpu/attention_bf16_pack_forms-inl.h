// Bf16Walk's way from pages of a ProductForm to operands. Included by attention_bf16.cpp
// alone, after the walk.
#pragma once

// False: the page goes by way of fp32.
template <class T, class Engine>
bool Bf16Walk<T, Engine>::pack_directly(const PageForm& form, const std::byte* page, size_t tokens) {
  switch (form.kind()) {
    case PageForm::Kind::kProduct: {
      const auto& product = static_cast<const ProductForm&>(form);
      if (!packs(product)) return false;
      pack_product_keys(product, page, at_.depth, keys_, ahead_);
      pack_product_values(product, page, at_.slots, values_, ahead_);
      break;
    }
    default:
      return false;
  }
  for (size_t token = 0; token < tokens && form.any_lost(page); ++token)
    if (form.is_lost(page, token)) fill_slot(values_, token, kBf16Nan);
  return true;
}
