// Attention with bf16 operands, by AVX-512 or by tiles, for K and V of 16 bits and for codes.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backend/code_rows.h"
#include "backend/cpu/attention_drive.h"
#include "backend/cpu/bf16_vectors.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/page_forms.h"
#include "backend/cpu/page_layout.h"
#include "backend/cpu/tiles.h"
#include "backend/forms/gear.h"
#include "backend/forms/latent.h"
#include "backend/forms/product.h"
#include "backend/forms/sorted.h"
#include "backend/forms/thin.h"

#if defined(__x86_64__)
#include <hwy/base.h>

#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12's own headers: the operand of a mask that is all ones
#endif
#include <immintrin.h>

// All that bf16_vectors.h has, so that its functions can be inlined, and more.
HWY_PUSH_ATTRIBUTES(
    "sse2,ssse3,sse4.1,sse4.2,pclmul,aes,avx,avx2,bmi,bmi2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,"
    "avx512vbmi,avx512vbmi2,avx512vnni,avx512bf16")
namespace godwit::cpu {
namespace {

// Elements of stored pages.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct Codes {};  // of the kind that the format says

// Found while a table of kernels is filled, when nobody else asks Highway.
const FormReaders& form_readers() {
  static const FormReaders readers = best_form_readers();
  return readers;
}

#include "backend/cpu/attention_bf16_math-inl.h"
#include "backend/cpu/attention_bf16_pack_codes-inl.h"
#include "backend/cpu/attention_bf16_pack_gear-inl.h"
#include "backend/cpu/attention_bf16_pack_latent-inl.h"
#include "backend/cpu/attention_bf16_pack_product-inl.h"
#include "backend/cpu/attention_bf16_pack_sorted-inl.h"
#include "backend/cpu/attention_bf16_pack_sparse-inl.h"
#include "backend/cpu/attention_bf16_pack_thin-inl.h"
#include "backend/cpu/attention_bf16_product-inl.h"
#include "backend/cpu/attention_bf16_walk-inl.h"
// After the walk, whose members they define.
#include "backend/cpu/attention_bf16_pack-inl.h"
#include "backend/cpu/attention_bf16_pack_forms-inl.h"
#include "backend/cpu/attention_bf16_softmax-inl.h"
#include "backend/cpu/attention_bf16_values-inl.h"

template <class Engine>
void attention(Context& context, const AttentionArgs& args) {
  GODWIT_CHECK(args.format.dtype == DType::kF16 || args.format.dtype == DType::kBF16);
  if (args.format.packed()) return AttentionDrive<Bf16Walk<Codes, Engine>>(context, args).run();
  if (args.format.dtype == DType::kF16) return AttentionDrive<Bf16Walk<F16, Engine>>(context, args).run();
  AttentionDrive<Bf16Walk<BF16, Engine>>(context, args).run();
}

}  // namespace

void fill_attention_bf16(Kernels& table) {
  form_readers();
  table.attention = &attention<VectorProduct>;
  table.finish_attention = &finish_attention<Bf16Walk<F16, VectorProduct>>;
}
void fill_attention_amx(Kernels& table) {
  form_readers();
  table.attention = &attention<TileProduct<AmxTiles>>;
  table.finish_attention = &finish_attention<Bf16Walk<F16, TileProduct<AmxTiles>>>;
}
void fill_attention_amx_emulated(Kernels& table) {
  form_readers();
  table.attention = &attention<TileProduct<EmulatedTiles>>;
  table.finish_attention = &finish_attention<Bf16Walk<F16, TileProduct<EmulatedTiles>>>;
}

}  // namespace godwit::cpu

HWY_POP_ATTRIBUTES
#pragma GCC diagnostic pop

#else  // no other machine has these targets

namespace godwit::cpu {
void fill_attention_bf16(Kernels&) {}
void fill_attention_amx(Kernels&) {}
void fill_attention_amx_emulated(Kernels&) {}
}  // namespace godwit::cpu

#endif
