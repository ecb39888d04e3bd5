#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"k", "4", "bits of K, 4 or 8; attention is more sensitive to errors of K than of V"},
    {"v", "4", "bits of V, 4 or 8"},
    {"last", "0", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<int> bits(const MethodArgs& args, std::string_view key, int head_dim) {
  GODWIT_ASSIGN(const int64_t bits, args.integer(key, 4, 8));
  if (bits != 4 && bits != 8)
    return errorf(ErrorCode::kInvalidArgument, "{} of KV codec 'q4' is {}; it can be 4 or 8", key, bits);
  if (bits == 4 && head_dim % 32 != 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'q4' stores heads whose size is a multiple of 32; this model's is {}; use q8", head_dim);
  return static_cast<int>(bits);
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  GODWIT_ASSIGN(const int k, bits(args, "k", head_dim));
  GODWIT_ASSIGN(const int v, bits(args, "v", head_dim));
  KvFormat format{.dtype = DType::kF16, .head_dim = head_dim, .k_bits = k, .v_bits = v};
  GODWIT_ASSIGN(format.open_last, kv_open_tokens(args, "last"));
  GODWIT_ASSIGN(format.open_first, kv_open_tokens(args, "first"));
  format.seals = format.open_last + format.open_first > 0;
  return format;
}

}  // namespace

extern const KvCodecRow kv_codec_q4 = {
    .info = {.name = "q4",
             .description =
                 "4-bit codes with a scale and a middle per token and head: 4.5 bits a number at head size 64",
             .reference =
                 "Sheng et al., FlexGen, arXiv 2303.06865 (min-max codes); Lin et al., QServe, arXiv 2405.04532 "
                 "(per token and head)",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
