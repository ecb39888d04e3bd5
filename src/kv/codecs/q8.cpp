#include "kv/codec.h"

namespace godwit {
namespace {

Result<KvFormat> make(const MethodArgs&, int head_dim) {
  return KvFormat{.dtype = DType::kF16, .head_dim = head_dim, .k_bits = 8, .v_bits = 8};
}

}  // namespace

extern const KvCodecRow kv_codec_q8 = {
    .info = {.name = "q8",
             .description =
                 "8-bit codes with a scale and a middle per token and head: 8.5 bits a number at head size 64",
             .reference =
                 "Sheng et al., FlexGen, arXiv 2303.06865 (min-max codes); Lin et al., QServe, arXiv 2405.04532 "
                 "(per token and head)",
             .params = {}},
    .make = make,
};

}  // namespace godwit
