#include "backend/forms/product.h"
#include "kv/codec.h"
#include "kv/codec_tables.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"file", "", "codebooks that were fitted to the model by `godwit tune million`"},
    {"last", "128", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  const std::string& file = args.text("file");
  if (file.empty())
    return errorf(
        ErrorCode::kInvalidArgument,
        "KV codec 'million' needs codebooks that were fitted to the model: make them by `godwit tune million` "
        "and give million:file=FILE");
  GODWIT_ASSIGN(const CodecTables tables, CodecTables::open("million", file));
  GODWIT_ASSIGN(const int64_t width, tables.integer("width", 1, 16));
  if (head_dim % (16 * width) != 0)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: groups of {} numbers do not fit heads of {}, which must be a multiple of {}", file, width,
                  head_dim, 16 * width);
  const std::vector<int64_t> shape = {head_dim, static_cast<int64_t>(ProductForm::kCentroids)};
  GODWIT_ASSIGN(const std::vector<float> k, tables.numbers("k", shape));
  GODWIT_ASSIGN(const std::vector<float> v, tables.numbers("v", shape));
  if (k.size() != v.size())
    return errorf(ErrorCode::kBadData, "{}: there are codebooks of different numbers of heads for K and V", file);
  std::vector<float> books;
  const size_t book = static_cast<size_t>(head_dim) * ProductForm::kCentroids;
  for (size_t at = 0; at < k.size(); at += book)
    for (const auto* half : {&k, &v})
      books.insert(books.end(), half->begin() + static_cast<ptrdiff_t>(at),
                   half->begin() + static_cast<ptrdiff_t>(at + book));
  return sealed_kv_format(args, head_dim, [&](size_t dims, size_t tokens) {
    return std::make_shared<ProductForm>(dims, tokens, static_cast<size_t>(width), std::move(books));
  });
}

}  // namespace

extern const KvCodecRow kv_codec_million = {
    .info = {.name = "million",
             .description = "product quantization: groups of two or four numbers as the nearest of 256 centroids that "
                            "were fitted to the head; the newest tokens in f16: 4 or 2 bits a number",
             .reference = "Wang et al., MILLION: Mastering Long-Context LLM Inference via Outlier-Immunized KV Product "
                          "Quantization, arXiv 2504.03661",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
