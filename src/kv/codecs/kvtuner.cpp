// Pages as kivi has them, each layer with bits of its own. K of 8 bits has scales of tokens: one of a dimension would
// gain nothing any more.
#include "kv/codec.h"
#include "kv/layer_bits.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"file", "", "JSON file with bits for each layer; godwit tune bits makes one"},
    {"bits", "", "the bits themselves, of K and V for each layer: 84-44-42"},
    {"last", "128", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "64", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<std::vector<LayerBits>> bits_of(const MethodArgs& args, int layers) {
  const std::string &file = args.text("file"), &bits = args.text("bits");
  if (file.empty() == bits.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'kvtuner' needs bits that were fitted to the model: give kvtuner:file=FILE or, as text, "
                  "kvtuner:bits=84-44-42");
  return file.empty() ? parse_layer_bits(bits, layers) : read_layer_bits(file, layers);
}

Result<std::vector<KvFormat>> make_layers(const MethodArgs& args, int head_dim, int layers) {
  KvFormat format{.dtype = DType::kF16, .head_dim = head_dim, .seals = true};
  GODWIT_ASSIGN(format.open_last, kv_open_tokens(args, "last"));
  GODWIT_ASSIGN(format.open_first, kv_open_tokens(args, "first"));
  GODWIT_ASSIGN(const std::vector<LayerBits> bits, bits_of(args, layers));
  std::vector<KvFormat> formats;
  for (const LayerBits& layer : bits) {
    const int fewest = std::min(layer.k, layer.v), multiple = fewest == 2 ? 64 : fewest == 4 ? 32 : 8;
    if (head_dim % multiple != 0)
      return errorf(ErrorCode::kInvalidArgument,
                    "KV codec 'kvtuner' with {} bits stores heads whose size is a multiple of {}; this model's is {}; "
                    "use q8",
                    fewest, multiple, head_dim);
    format.k_bits = layer.k;
    format.v_bits = layer.v;
    format.k_by_dim = layer.k < 8;
    formats.push_back(format);
  }
  return formats;
}

}  // namespace

extern const KvCodecRow kv_codec_kvtuner = {
    .info = {.name = "kvtuner",
             .description = "2-, 4- or 8-bit codes, for K and V of each layer as many as it needs; the newest tokens "
                            "in f16",
             .reference = "Li et al., KVTuner: Sensitivity-Aware Layer-Wise Mixed-Precision KV Cache Quantization, "
                          "arXiv 2502.04420",
             .params = kParams},
    .make = nullptr,
    .make_layers = make_layers,
};

}  // namespace godwit
