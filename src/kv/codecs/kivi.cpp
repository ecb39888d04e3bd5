// Pages are the groups of tokens: a page's keys have one scale and middle per dimension. That needs all of them, so
// pages stay open, in f16, until enough tokens have come after them.
#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"k", "2", "bits of K, 2 or 4"},
    {"v", "2", "bits of V, 2 or 4"},
    {"last", "128", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<int> bits(const MethodArgs& args, std::string_view key, int head_dim) {
  GODWIT_ASSIGN(const int64_t bits, args.integer(key, 2, 4));
  if (bits == 3) return errorf(ErrorCode::kInvalidArgument, "{} of KV codec 'kivi' is 3; it can be 2 or 4", key);
  const int64_t multiple = bits == 2 ? 64 : 32;
  if (head_dim % multiple != 0)
    return errorf(
        ErrorCode::kInvalidArgument,
        "KV codec 'kivi' with {} = {} stores heads whose size is a multiple of {}; this model's is {}; use q8", key,
        bits, multiple, head_dim);
  return static_cast<int>(bits);
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  KvFormat format{.dtype = DType::kF16, .head_dim = head_dim, .k_by_dim = true, .seals = true};
  GODWIT_ASSIGN(format.k_bits, bits(args, "k", head_dim));
  GODWIT_ASSIGN(format.v_bits, bits(args, "v", head_dim));
  GODWIT_ASSIGN(format.open_last, kv_open_tokens(args, "last"));
  GODWIT_ASSIGN(format.open_first, kv_open_tokens(args, "first"));
  return format;
}

}  // namespace

extern const KvCodecRow kv_codec_kivi = {
    .info = {.name = "kivi",
             .description =
                 "2- or 4-bit codes, of K by dimension and page, of V by token; the newest tokens in f16: 2.5 "
                 "or 4.5 bits a number at head size 64",
             .reference = "Liu et al., KIVI, arXiv 2402.02750",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
