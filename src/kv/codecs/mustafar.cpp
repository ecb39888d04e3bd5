// Deviations: what is stored of a page is packed as a whole, not padded token by token, and pages are sealed at their
// ends (see KvFormat::seals), so that the dense window is at least as long as asked for.
#include <cmath>

#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"k", "0.5", "share of each token's K that is dropped"},
    {"v", "0.5", "share of each token's V that is dropped"},
    {"last", "64", "tokens before the page at hand that stay whole; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay whole; a multiple of 64"},
};

Result<int> keep(const MethodArgs& args, std::string_view key, int head_dim) {
  GODWIT_ASSIGN(const double dropped, args.real(key, 0, 0.95));
  return std::max(1, static_cast<int>(std::lround((1 - dropped) * head_dim)));
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  if (head_dim % 16 != 0 || head_dim > 512)
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'mustafar' stores heads of up to 512 numbers, a multiple of 16; this model's is {}; use q8",
                  head_dim);
  KvFormat format{.dtype = DType::kF16, .head_dim = head_dim, .seals = true};
  GODWIT_ASSIGN(format.k_keep, keep(args, "k", head_dim));
  GODWIT_ASSIGN(format.v_keep, keep(args, "v", head_dim));
  GODWIT_ASSIGN(format.open_last, kv_open_tokens(args, "last"));
  GODWIT_ASSIGN(format.open_first, kv_open_tokens(args, "first"));
  return format;
}

}  // namespace

extern const KvCodecRow kv_codec_mustafar = {
    .info = {.name = "mustafar",
             .description = "of each token and head the numbers of largest magnitude, in f16 with a bitmap; the newest "
                            "tokens whole: 9 bits a number if half are dropped",
             .reference =
                 "Joo et al., Mustafar: Promoting Unstructured Sparsity for KV Cache Pruning, arXiv 2505.22913",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
