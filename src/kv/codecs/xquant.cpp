#include <cmath>

#include "backend/forms/latent.h"
#include "kv/codec.h"
#include "kv/codec_tables.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"file", "", "singular vectors of the model's weights, by `godwit tune xquant`"},
    {"rank", "0.5", "share of the coordinates that are strong, in order of their singular values"},
    {"k", "4", "bits of K's strong coordinates: 2, 4, 8, or 16 for f16"},
    {"v", "4", "... and of V's"},
    {"rest", "2", "bits of the other coordinates: 2, 4, or 0 to leave them out"},
    {"last", "64", "tokens before the page at hand that stay in f16; a multiple of 64"},
    {"first", "0", "tokens at the beginning that stay in f16; a multiple of 64"},
};

Result<int> bits(const MethodArgs& args, std::string_view key, std::initializer_list<int> choices) {
  GODWIT_ASSIGN(const int64_t bits, args.integer(key, 0, 16));
  for (int choice : choices)
    if (bits == choice) return choice;
  return errorf(ErrorCode::kInvalidArgument, "{} of KV codec 'xquant' is {}; it can be {}", key, bits,
                fmt::join(choices, ", "));
}

// Vectors that are not orthonormal would make other numbers of those that they store.
Status check_orthonormal(const std::vector<float>& bases, size_t dims, const std::string& file) {
  constexpr double kMostOff = 1e-3;
  for (size_t at = 0; at < bases.size(); at += dims * dims)
    for (size_t i = 0; i < dims; ++i)
      for (size_t j = 0; j <= i; ++j) {
        const float *a = &bases[at + i * dims], *b = &bases[at + j * dims];
        double dot = 0;
        for (size_t d = 0; d < dims; ++d) dot += double{a[d]} * b[d];
        if (!(std::abs(dot - (i == j ? 1 : 0)) <= kMostOff))
          return errorf(ErrorCode::kBadData, "{}: its vectors are not orthonormal; make them by `godwit tune xquant`",
                        file);
      }
  return {};
}

Result<KvFormat> make(const MethodArgs& args, int head_dim) {
  const std::string& file = args.text("file");
  if (file.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'xquant' needs singular vectors of the model's weights: make them by `godwit tune xquant` "
                  "and give xquant:file=FILE");
  if (head_dim % 16 != 0 || head_dim > static_cast<int>(LatentForm::kMostDims))
    return errorf(ErrorCode::kInvalidArgument,
                  "KV codec 'xquant' stores heads of up to {} numbers, a multiple of 16; this model's is {}; use q8",
                  LatentForm::kMostDims, head_dim);
  LatentOptions options;
  GODWIT_ASSIGN(options.k_bits, bits(args, "k", {2, 4, 8, 16}));
  GODWIT_ASSIGN(options.v_bits, bits(args, "v", {2, 4, 8, 16}));
  GODWIT_ASSIGN(options.weak_bits, bits(args, "rest", {0, 2, 4}));
  GODWIT_ASSIGN(const double rank, args.real("rank", 0, 1));
  options.strong = static_cast<size_t>(std::max<long>(1, std::lround(rank * head_dim)));
  GODWIT_ASSIGN(const CodecTables tables, CodecTables::open("xquant", file));
  LatentRope rope;
  GODWIT_ASSIGN(const int64_t pairs, tables.integer("rope_pairs", 0, 1));
  GODWIT_ASSIGN(const int64_t rotary, tables.integer("rotary_dim", 2, head_dim));
  if (rotary % 2 != 0) return errorf(ErrorCode::kBadData, "{}: rotary_dim is {}; it must be even", file, rotary);
  rope.pairs = pairs != 0;
  rope.rotary_dim = static_cast<size_t>(rotary);
  GODWIT_ASSIGN(rope.speed, tables.numbers("rope", {rotary / 2}));
  GODWIT_ASSIGN(const std::vector<float> k, tables.numbers("k", {head_dim, head_dim}));
  GODWIT_ASSIGN(const std::vector<float> v, tables.numbers("v", {head_dim, head_dim}));
  const auto dims = static_cast<size_t>(head_dim), basis = dims * dims;
  if (k.size() != v.size() || k.size() / basis != rope.speed.size() / (rope.rotary_dim / 2))
    return errorf(ErrorCode::kBadData, "{}: there are vectors of different numbers of heads", file);
  std::vector<float> bases;
  for (size_t at = 0; at < k.size(); at += basis)
    for (const auto* half : {&k, &v})
      bases.insert(bases.end(), half->begin() + static_cast<ptrdiff_t>(at),
                   half->begin() + static_cast<ptrdiff_t>(at + basis));
  GODWIT_TRY(check_orthonormal(bases, dims, file));
  return sealed_kv_format(args, head_dim, [&](size_t, size_t) {
    return std::make_shared<LatentForm>(dims, options, std::move(rope), std::move(bases));
  });
}

}  // namespace

extern const KvCodecRow kv_codec_xquant = {
    .info = {.name = "xquant",
             .description = "K before RoPE and V in coordinates along the singular vectors of the weights that they "
                            "come from, with more bits for the strong ones, rebuilt when they are read; the newest "
                            "tokens in f16: 3.6 bits a number at head size 64",
             .reference = "Tomar et al., XQuant: Breaking the Memory Wall for LLM Inference with KV Cache "
                          "Rematerialization, arXiv 2508.10395 (its form for GQA, head by head; not X itself, nor "
                          "differences between layers)",
             .params = kParams},
    .make = make,
};

}  // namespace godwit
