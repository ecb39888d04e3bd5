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
  Result<KvFormat> (*make)(const MethodArgs& args, int head_dim);
};

std::span<const KvCodecRow* const> all_kv_codecs();  // by name; generated

// A name that is not in the table is an error that lists what is.
Result<const KvCodecRow*> find_kv_codec(std::string_view name);

// A number of tokens that stay open, in whole pages; see KvFormat.
Result<int> kv_open_tokens(const MethodArgs& args, std::string_view key);

// The page format of `spec` (NAME[:k=v,…]) for heads of `head_dim` numbers.
Result<KvFormat> make_kv_format(std::string_view spec, int head_dim);

}  // namespace godwit
