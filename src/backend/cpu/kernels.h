// The CPU's kernels as a table of functions: one table per SIMD target and one of scalar references. Each operation has
// a file of its own that fills its entries for every target (Highway's foreach_target) and a `*_ref.cpp` twin, the
// scalar reference that the tests compare with. A back-end picks one table when it is made; there is no global switch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"

namespace godwit::cpu {

// What an operation may use besides its arguments.
class Context {
 public:
  explicit Context(int threads) : pool(threads), thread_blocks_(static_cast<size_t>(pool.threads())) {}

  ThreadPool pool;

  // At least `bytes` of 64-byte aligned scratch for one thread of the pool. Contents survive until that thread asks
  // again.
  std::byte* scratch(int thread, size_t bytes) { return grow(thread_blocks_[static_cast<size_t>(thread)], bytes); }
  // Likewise for the operation as a whole; to be asked for outside parallel loops.
  std::byte* shared_scratch(size_t bytes) { return grow(shared_block_, bytes); }

 private:
  static std::byte* grow(Buffer& block, size_t bytes);
  std::vector<Buffer> thread_blocks_;
  Buffer shared_block_;
};

// `bytes` of 64-byte aligned host memory; empty when the system has none.
Buffer aligned_buffer(size_t bytes);

// out = act(gate) * up; out may be gate.
using GatedRow = void (*)(const float* gate, const float* up, float* out, int64_t count);

struct Kernels {
  std::string target;  // "AMX_INT8", "AVX3", …, "reference"

  void (*embed)(Context&, Tensor tokens, Tensor table, float scale, Tensor out) = nullptr;
  void (*gather_rows)(Context&, Tensor x, Tensor rows, Tensor out) = nullptr;
  void (*rms_norm)(Context&, Tensor x, Tensor weight, float eps, Tensor out) = nullptr;
  void (*rope)(Context&, const RopeArgs&) = nullptr;
  void (*gated)(Context&, Activation, Tensor gate, Tensor up, Tensor out) = nullptr;
  GatedRow (*gated_row)(Activation) = nullptr;
  void (*add)(Context&, Tensor x, Tensor y) = nullptr;
  void (*softcap)(Context&, Tensor x, float cap) = nullptr;
  // Work on fp32 weights, and on K and V in fp32, stays in fp32 on every target; the rest is the target's own, but for
  // weights of types that it leaves to fp32, too.
  bool (*in_fp32)(DType weights) = [](DType weights) { return weights == DType::kF32; };
  void (*matmul)(Context&, const MatmulArgs&) = nullptr;
  void (*matmul_f32)(Context&, const MatmulArgs&) = nullptr;
  // Where a target has them, for weights that are not left to fp32: several products of one x, and two whose sums are
  // combined as they come.
  void (*matmul_all)(Context&, std::span<const MatmulArgs>) = nullptr;
  void (*gated_matmul)(Context&, const MatmulArgs& gate, const MatmulArgs& up, GatedRow) = nullptr;
  // Where a target has them: Backend's.
  bool (*can_pack)(const Tensor&) = nullptr;
  void (*pack)(Context&, const Tensor& rows, const Tensor& packed) = nullptr;
  void (*unpack)(Context&, const Tensor& packed, const Tensor& rows) = nullptr;
  void (*route)(Context&, const RouteArgs&) = nullptr;
  void (*expert_matmul)(Context&, const ExpertMatmulArgs&) = nullptr;
  void (*expert_matmul_f32)(Context&, const ExpertMatmulArgs&) = nullptr;
  void (*combine_experts)(Context&, Tensor x, Tensor weights, Tensor out) = nullptr;
  void (*kv_write)(Context&, const KvWriteArgs&) = nullptr;
  void (*attention)(Context&, const AttentionArgs&) = nullptr;
  void (*attention_f32)(Context&, const AttentionArgs&) = nullptr;
  void (*finish_attention)(Context&, const FinishAttentionArgs&) = nullptr;
  void (*finish_attention_f32)(Context&, const FinishAttentionArgs&) = nullptr;
  void (*merge_partials)(Context&, const AttnPartial& into, const AttnPartial& from) = nullptr;
  void (*observe)(Context&, const ObserveArgs&) = nullptr;
};

// Each fills its part of the table for one of Highway's targets, named by its bit:
// embed, gather_rows, rms_norm, rope, gated, add, softcap, combine_experts;
void fill_elementwise(Kernels& table, int64_t target);
void fill_matmul(Kernels& table, int64_t target);     // matmul, expert_matmul and their f32 twins;
void fill_attention(Kernels& table, int64_t target);  // kv_write, attention, finish_attention and f32, merge_partials;
void fill_observe(Kernels& table, int64_t target);    // observe.
// These replace entries by kernels with bf16 operands and fp32 sums: in AVX-512, in tiles, in emulated tiles. The
// machine must have what features.h says.
void fill_matmul_bf16(Kernels& table);  // matmul, expert_matmul
// Quantized weights in 8 bits, the rest in fp32: in AVX-512, and in AVX2.
void fill_matmul_vnni(Kernels& table);
void fill_matmul_avx512_int8(Kernels& table);
void fill_matmul_avx_vnni(Kernels& table);
void fill_matmul_avx2_int8(Kernels& table);
void fill_matmul_amx_bf16(Kernels& table);
void fill_matmul_amx_int8(Kernels& table);  // weights of few bits in tiles of 8 bits
void fill_matmul_amx_emulated(Kernels& table);
void fill_attention_bf16(Kernels& table);  // attention, finish_attention
void fill_attention_amx(Kernels& table);
void fill_attention_amx_emulated(Kernels& table);
// The scalar references; route has no SIMD version and is shared.
void fill_elementwise_ref(Kernels& table);
void fill_matmul_ref(Kernels& table);
void fill_attention_ref(Kernels& table);
void fill_observe_ref(Kernels& table);
void fill_route(Kernels& table);

// Pages in the CPU's layout; plain copies, the same for every target.
void kv_read(Context& context, const KvReadArgs& args);
void kv_seal(Context& context, const KvSealArgs& args);
void kv_move(const KvFormat& format, std::byte* to_slab, const std::byte* from_slab, std::span<const KvMove> moves);
void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical);
void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical);

// The table of a target named by cpu_simd_targets(), "reference", or "" for the best. Not listed there, for tests:
// "AMX_EMULATED", the kernels of AMX_INT8 on a machine with AVX512_BF16.
Result<Kernels> kernels_for(const std::string& target);

}  // namespace godwit::cpu
