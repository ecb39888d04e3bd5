#include "kv/codec.h"

namespace godwit {
namespace {

constexpr std::string_view kKind = "KV codec";

}  // namespace

Result<const KvCodecRow*> find_kv_codec(std::string_view name) {
  return find_method(kKind, all_kv_codecs(), name);
}

Result<int> kv_open_tokens(const MethodArgs& args, std::string_view key) {
  const int64_t page = KvFormat().page_tokens;
  GODWIT_ASSIGN(const int64_t tokens, args.integer(key, 0, 1 << 20));
  if (tokens % page != 0)
    return errorf(ErrorCode::kInvalidArgument, "{} of a KV codec is {} tokens; it must be a multiple of {}", key,
                  tokens, page);
  return static_cast<int>(tokens);
}

Result<KvFormat> make_kv_format(std::string_view spec, int head_dim) {
  GODWIT_ASSIGN(ChosenMethod<KvCodecRow> codec, choose_method(kKind, all_kv_codecs(), spec));
  return codec.row->make(codec.args, head_dim);
}

}  // namespace godwit
