#include "backend/forms/sorted.h"
#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"k", "4", "bits of K, 4 or 8"},
    {"v", "4", "bits of V, 4 or 8"},
    {"sort", "on", "whether channels of K that are of like size share blocks; off: neighbours do"},
    {"last", "64", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<int> bits(const MethodArgs& args, std::string_view key) {
  GODWIT_ASSIGN(const int64_t bits, args.integer(key, 4, 8));
  if (bits != 4 && bits != 8)
    return errorf(ErrorCode::kInvalidArgument, "{} of KV codec 'ksort' is {}; it can be 4 or 8", key, bits);
  return static_cast<int>(bits);
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  if (head_dim % 32 != 0 || head_dim > 256)
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'ksort' stores heads of up to 256 numbers, a multiple of 32; this model's is {}; use q8",
                  head_dim);
  SortedOptions options;
  GODWIT_ASSIGN(options.k_bits, bits(args, "k"));
  GODWIT_ASSIGN(options.v_bits, bits(args, "v"));
  GODWIT_ASSIGN(options.sorts, args.flag("sort"));
  return sealed_kv_format(
      args, head_dim, [&](size_t dims, size_t tokens) { return std::make_shared<SortedForm>(dims, tokens, options); });
}

}  // namespace

extern const KvCodecRow kv_codec_ksort = {
    .info = {.name = "ksort",
             .description = "block floating point: 16 numbers of a token share a power of two, and channels of K are "
                            "sorted by size so that outliers share theirs; the newest tokens in f16: 4.6 bits a number",
             .reference =
                 "Trukhanov and Soloveychik, Accurate Block Quantization in LLMs with Outliers, arXiv 2403.20137",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
