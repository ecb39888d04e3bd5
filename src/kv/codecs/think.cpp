#include <cmath>

#include "backend/forms/thin.h"
#include "kv/codec.h"
#include "kv/codec_tables.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"drop", "0.4", "share of K's channels that each page does without"},
    {"file", "", "what `godwit tune think` found out about the model's queries; without it all channels count alike"},
    {"last", "64", "tokens before the page at hand that stay whole; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay whole; a multiple of 64"},
};

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  if (head_dim % 16 != 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'think' stores heads whose size is a multiple of 16; this model's is {}; use q8", head_dim);
  GODWIT_ASSIGN(const double dropped, args.real("drop", 0, 0.95));
  const auto kept = static_cast<size_t>(std::max<long>(1, std::lround((1 - dropped) * head_dim)));
  std::vector<float> weights;
  if (const std::string& file = args.text("file"); !file.empty()) {
    GODWIT_ASSIGN(const CodecTables tables, CodecTables::open("think", file));
    GODWIT_ASSIGN(weights, tables.numbers("queries", {head_dim}));
    if (std::any_of(weights.begin(), weights.end(), [](float x) { return !(x >= 0); }))
      return errorf(ErrorCode::kBadData, "{}: a mean square is negative or no number", file);
  }
  return sealed_kv_format(args, head_dim, [&](size_t dims, size_t tokens) {
    return std::make_shared<ThinForm>(dims, tokens, kept, weights);
  });
}

}  // namespace

extern const KvCodecRow kv_codec_think = {
    .info = {.name = "think",
             .description = "keys without the channels of each page that matter least to scores, in f16, and values "
                            "whole; the newest tokens whole: 12.8 bits a number if 40% are dropped",
             .reference = "Xu et al., ThinK: Thinner Key Cache by Query-Driven Pruning, arXiv 2407.21018",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
