// The table of KV codecs: how numbers of K and V are stored in pages. One codec is one file of codecs/, which exports
// one row named kv_codec_<file>.
#pragma once

#include <span>
#include <string_view>

#include "backend/kv_format.h"
#include "kv/method.h"

namespace godwit {

struct KvCodecRow {
  MethodInfo info;
  // One of them: the same format for every layer, or one for each, which may differ in bits.
  Result<KvFormat> (*make)(const MethodArgs& args, int head_dim);
  Result<std::vector<KvFormat>> (*make_layers)(const MethodArgs& args, int head_dim, int layers) = nullptr;
};

std::span<const KvCodecRow* const> all_kv_codecs();  // by name; generated

// A number of tokens that stay open, in whole pages; see KvFormat.
Result<int> kv_open_tokens(const MethodArgs& args, std::string_view key);

// The format of a codec with parameters `last` and `first`, whose pages are sealed in the form that make_form(head_dim,
// page_tokens) gives.
template <class MakeForm>
Result<KvFormat> sealed_kv_format(const MethodArgs& args, int head_dim, const MakeForm& make_form) {
  KvFormat format{.dtype = DType::kF16, .head_dim = head_dim, .seals = true};
  GODWIT_ASSIGN(format.open_last, kv_open_tokens(args, "last"));
  GODWIT_ASSIGN(format.open_first, kv_open_tokens(args, "first"));
  format.sealed_form = make_form(static_cast<size_t>(head_dim), static_cast<size_t>(format.page_tokens));
  return format;
}

// The page formats of `spec` (NAME[:k=v,…]) for the layers of a model with heads of `head_dim` numbers.
Result<std::vector<KvFormat>> make_kv_formats(std::string_view spec, int head_dim, int layers);
// For who knows but one: a codec whose layers differ is refused.
Result<KvFormat> make_kv_format(std::string_view spec, int head_dim);

}  // namespace godwit
