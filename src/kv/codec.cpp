#include "kv/codec.h"

namespace godwit {
namespace {

constexpr std::string_view kKind = "KV codec";

}  // namespace

Result<int> kv_open_tokens(const MethodArgs& args, std::string_view key) {
  const int64_t page = KvFormat().page_tokens;
  GODWIT_ASSIGN(const int64_t tokens, args.integer(key, 0, 1 << 20));
  if (tokens % page != 0)
    return errorf(ErrorCode::kInvalidArgument, "{} of a KV codec is {} tokens; it must be a multiple of {}", key,
                  tokens, page);
  return static_cast<int>(tokens);
}

Result<std::vector<KvFormat>> make_kv_formats(std::string_view spec, int head_dim, int layers) {
  GODWIT_ASSIGN(ChosenMethod<KvCodecRow> codec, choose_method(kKind, all_kv_codecs(), spec));
  if (codec.row->make_layers != nullptr) return codec.row->make_layers(codec.args, head_dim, layers);
  GODWIT_ASSIGN(const KvFormat format, codec.row->make(codec.args, head_dim));
  return std::vector<KvFormat>(static_cast<size_t>(layers), format);
}

Result<KvFormat> make_kv_format(std::string_view spec, int head_dim) {
  GODWIT_ASSIGN(ChosenMethod<KvCodecRow> codec, choose_method(kKind, all_kv_codecs(), spec));
  if (codec.row->make == nullptr)
    return errorf(ErrorCode::kUnsupported,
                  "KV codec '{}' is another one for each layer; give one that is the same here", codec.row->info.name);
  return codec.row->make(codec.args, head_dim);
}

}  // namespace godwit
