#include "kv/codec.h"

namespace godwit {
namespace {

constexpr std::string_view kKind = "KV codec";

}  // namespace

Result<const KvCodecRow*> find_kv_codec(std::string_view name) {
  return find_method(kKind, all_kv_codecs(), name);
}

Result<KvFormat> make_kv_format(std::string_view spec, int head_dim) {
  GODWIT_ASSIGN(ChosenMethod<KvCodecRow> codec, choose_method(kKind, all_kv_codecs(), spec));
  return codec.row->make(codec.args, head_dim);
}

}  // namespace godwit
