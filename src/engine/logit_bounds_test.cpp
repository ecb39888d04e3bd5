// How far a prompt's logits are from those of fp32 arithmetic over the same stored weights: for every type of weights,
// on every SIMD target.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "engine/random_model.h"
#include "engine/test_engine.h"
#include "tensor/dtype.h"

namespace godwit {
namespace {

using namespace engine_test;

std::vector<std::string> all_targets() {
  std::vector<std::string> names(cpu_simd_targets().begin(), cpu_simd_targets().end());
  if (make_cpu_backend({.threads = 1, .simd = "AMX_EMULATED"}).has_value()) names.emplace_back("AMX_EMULATED");
  return names;
}

// The largest share of the logits' length that rounding may be. Activations are rounded to 8 bits with a scale for each
// 32 or, in tiles, for each 256, and so are weights of up to 5 bits there; or to bf16; or not at all.
double bound(std::string_view target, DType dtype) {
  constexpr double kTiles = 0.06, kBytes = 0.03, kBf16 = 0.012, kFp32 = 3e-6;
  const bool amx = target.starts_with("AMX");
  if (dtype == DType::kF32) return kFp32;
  if (is_quantized(dtype) && amx) return kTiles;
  if (amx || target == "AVX512_BF16") return is_quantized(dtype) ? kBytes : kBf16;
  return is_quantized(dtype) && (target.find("INT8") != target.npos || target.find("VNNI") != target.npos) ? kBytes
                                                                                                           : kFp32;
}

TEST(LogitBounds, HoldForEveryTypeOnEveryTarget) {
  io_test::TempFolder folder;
  const std::vector<TokenId> first = prompt(8), rest = prompt(24, 2);
  for (const DTypeInfo& info : all_dtypes()) {
    if (info.dtype == DType::kI32) continue;
    EngineOptions options;
    options.model = (folder.path() / fmt::format("{}.gguf", info.name)).string();
    options.threads = 1;
    options.kv_codec = "f32";  // else it would round, too
    ConvertOptions convert;
    convert.dtype = info.dtype;
    value_of(write_random_model(value_of(find_shape("llama-tiny")), 3, convert, options.model));
    options.simd = "reference";
    const std::vector<float> exact = logits_of(open(options), first, rest);
    for (const std::string& target : all_targets()) {
      SCOPED_TRACE(testing::Message() << info.name << " on " << target);
      options.simd = target;
      const double off = distance(logits_of(open(options), first, rest), exact);
      EXPECT_LT(off, bound(target, info.dtype));
      EXPECT_EQ(off > 1e-4, bound(target, info.dtype) > 1e-4);  // or the table above says too much
    }
  }
}

}  // namespace
}  // namespace godwit
