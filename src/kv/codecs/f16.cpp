#include "kv/codec.h"

namespace godwit {
namespace {

Result<KvFormat> make(const MethodArgs&, int head_dim) {
  return KvFormat{.dtype = DType::kF16, .head_dim = head_dim};
}

}  // namespace

extern const KvCodecRow kv_codec_f16 = {
    .info = {.name = "f16",
             .description = "half precision: 11 significant bits, up to 65,504",
             .reference = "IEEE 754-2019 binary16",
             .params = {}},
    .make = make,
};

}  // namespace godwit
