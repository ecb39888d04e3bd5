#include "kv/codec.h"

namespace godwit {
namespace {

Result<KvFormat> make(const MethodArgs&, int head_dim) {
  return KvFormat{.dtype = DType::kF32, .head_dim = head_dim};
}

}  // namespace

extern const KvCodecRow kv_codec_f32 = {
    .info = {.name = "f32",
             .description = "single precision; what K and V are computed in, so nothing is lost",
             .reference = "IEEE 754-2019 binary32",
             .params = {}},
    .make = make,
};

}  // namespace godwit
