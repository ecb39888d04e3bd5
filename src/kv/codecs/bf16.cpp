#include "kv/codec.h"

namespace godwit {
namespace {

Result<KvFormat> make(const MethodArgs&, int head_dim) {
  return KvFormat{.dtype = DType::kBF16, .head_dim = head_dim};
}

}  // namespace

extern const KvCodecRow kv_codec_bf16 = {
    .info = {.name = "bf16",
             .description = "the upper half of single precision: 8 significant bits, full range",
             .reference = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, arXiv 1905.12322",
             .params = {}},
    .make = make,
};

}  // namespace godwit
