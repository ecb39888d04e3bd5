#include "backend/forms/gear.h"

#include "kv/codec.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"k", "2", "bits of K's codes, 2 or 4"},
    {"v", "2", "bits of V's codes, 2 or 4"},
    {"rank", "2", "rank of the product that takes up the codes' errors, 0 to 8; half a bit a number each"},
    {"extremes", "1",
     "numbers at either end of a channel's keys and of a token's values that are stored exactly, 0 to 8"},
    {"last", "64", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<int> bits(const MethodArgs& args, std::string_view key, int head_dim) {
  GODWIT_ASSIGN(const int64_t bits, args.integer(key, 2, 4));
  if (bits == 3) return errorf(ErrorCode::kInvalidArgument, "{} of KV codec 'gear' is 3; it can be 2 or 4", key);
  const int multiple = bits == 2 ? 64 : 32;
  if (head_dim % multiple != 0 || head_dim > 256)
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'gear' with {} = {} stores heads of up to 256 numbers, a multiple of {}; this model's is "
                  "{}; use q8",
                  key, bits, multiple, head_dim);
  return static_cast<int>(bits);
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  GearOptions options;
  GODWIT_ASSIGN(options.k_bits, bits(args, "k", head_dim));
  GODWIT_ASSIGN(options.v_bits, bits(args, "v", head_dim));
  GODWIT_ASSIGN(const int64_t rank, args.integer("rank", 0, GearForm::kMostRank));
  GODWIT_ASSIGN(const int64_t extremes, args.integer("extremes", 0, GearForm::kMostExtremes));
  options.rank = static_cast<size_t>(rank);
  options.extremes = static_cast<size_t>(extremes);
  return sealed_kv_format(
      args, head_dim, [&](size_t dims, size_t tokens) { return std::make_shared<GearForm>(dims, tokens, options); });
}

}  // namespace

extern const KvCodecRow kv_codec_gear = {
    .info = {.name = "gear",
             .description = "kivi's codes, a product of thin matrices that takes up their errors, and the extremes as "
                            "they are; the newest tokens in f16: 4.3 or 6.3 bits a number at head size 64",
             .reference = "Kang et al., GEAR: An Efficient KV Cache Compression Recipe, arXiv 2403.05527",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
