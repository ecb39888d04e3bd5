// Where tensors live and operations run. Nothing above this layer follows a Tensor's pointer: the memory may be a
// GPU's.
//
// Operations are queued in order and may be asynchronous; download() and synchronize() wait. Activations are fp32,
// weights any DType that supports() accepts. All operations are batch-invariant: a row's result does not depend on the
// other rows of the call, on the number of threads, or on how a prompt was cut into calls; on the phase, see below.
// Arguments are checked with GODWIT_CHECK: a wrong shape is our bug. A Backend may be used by one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/attention.h"
#include "backend/kv_format.h"
#include "backend/observe.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace godwit {

// Memory of a back-end; freed with the last copy.
struct Buffer {
  std::shared_ptr<std::byte> memory;
  size_t bytes = 0;
  std::byte* data() const { return memory.get(); }
};

enum class RopeStyle {
  kHalves,  // pairs (i, i + dim/2): Hugging Face, GPT-NeoX
  kPairs,   // pairs (2i, 2i + 1): GGUF files of the llama architecture
};

enum class Activation { kSilu, kGeluTanh };

struct RopeArgs {
  Tensor x;             // [rows, heads, head_dim] f32, in place
  Tensor positions;     // [rows] i32
  Tensor inv_freq;      // [rotary_dim / 2] f32; dimensions past rotary_dim stay
  float magnitude = 1;  // multiplies cos and sin (YaRN, longrope)
  RopeStyle style = RopeStyle::kHalves;
};

// What a step is for. A back-end may multiply quantized weights in another way for each (the targets AMX_BF16 and
// AMX_INT8 do: operands of bf16, or of 8 bits per 256 values, in prefill, activations of 8 bits per 32 in decode;
// others ignore it). Rows of one phase have the same bits whatever else is in the call; the two phases differ by
// rounding.
enum class Phase : uint8_t {
  kPrefill,  // tokens that are given: prompts and scoring
  kDecode,   // tokens that were sampled, one per sequence and step
};

struct MatmulArgs {
  Tensor x;                 // [rows, in] f32
  Tensor w;                 // [out, in] any supported type
  Tensor bias;              // [out] f32, optional
  Tensor y;                 // [rows, out] f32
  bool accumulate = false;  // y += instead of y =
  Phase phase = Phase::kPrefill;
};

// y = act(x gate_w^T + gate_bias) * (x up_w^T + up_bias)
struct GatedMatmulArgs {
  Tensor x;                  // [rows, in] f32
  Tensor gate_w, gate_bias;  // [out, in] and, optionally, [out] f32
  Tensor up_w, up_bias;
  Activation activation = Activation::kSilu;
  Tensor y;      // [rows, out] f32
  Tensor spare;  // [rows, out] f32; what it holds afterwards is not specified
  Phase phase = Phase::kPrefill;
};

struct ExpertMatmulArgs {
  Tensor x;    // [tokens, in] or [tokens * per_token, in] f32
  Tensor w;    // [experts, out, in]
  Tensor ids;  // [tokens, per_token] i32
  Tensor y;    // [tokens * per_token, out] f32: row t * per_token + j uses expert ids[t, j]
  Phase phase = Phase::kPrefill;
};

struct RouteArgs {
  Tensor logits;          // [tokens, experts] f32
  Tensor ids;             // [tokens, per_token] i32, written; best first, lower index wins ties
  Tensor weights;         // [tokens, per_token] f32, written: softmax over all experts ...
  bool normalize = true;  // ... then scaled so the chosen ones sum to 1
};

struct KvWriteArgs {
  KvFormat format;
  std::byte* slab = nullptr;
  std::span<const KvSlot> slots;  // [rows, kv_heads]; of open pages, if the format seals
  Tensor k, v;                    // [rows, kv_heads, head_dim] f32
  std::byte* open_slab = nullptr;
};

struct KvReadArgs {
  KvFormat format;
  const std::byte* slab = nullptr;
  std::span<const KvSlot> slots;  // [n]
  Tensor k, v;                    // [n, head_dim] f32, written
  const std::byte* open_slab = nullptr;
};

// Open pages become codes. Every slot of them is written.
struct KvSeal {
  PageId open, sealed;  // the first is marked kOpenPage
  uint32_t table = 0;   // of the format's sealed_form: layer * kv_heads + KV head
  // Where the tokens stand, as in PageRef; for a sealed_form.
  int32_t first_position = 0;
  uint32_t aux = kNoAux;
};
struct KvSealArgs {
  KvFormat format;  // of the sealed pages
  const std::byte* open_slab = nullptr;
  std::byte* slab = nullptr;
  std::span<const KvSeal> pages;
  const std::byte* aux = nullptr;  // explicit slot data, if a page has some
};

struct KvMove {  // one slot's K and V, copied
  KvSlot from, to;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // what runs: SIMD target, threads and where they are, device
  virtual int threads() const = 0;              // of this process that compute
  virtual bool supports(DType weight) const = 0;
  virtual size_t memory_bytes() const = 0;  // what this process can still get; 0 = unknown

  // Memory. allocate() gives at least 64-byte alignment and unspecified contents. import_host() makes host bytes usable
  // as weights: a back-end that shares the host's memory keeps `owner` and copies nothing.
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  virtual Result<Buffer> import_host(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) = 0;
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void synchronize() = 0;

  // A matrix [out, in] or [experts, out, in] laid out anew for products and, of a table, embed(), which alone read it
  // then, in the bytes that it took; unpack() undoes that. Results do not change.
  virtual bool can_pack(const Tensor& rows) const = 0;
  virtual void pack(Tensor rows, Tensor packed) = 0;
  virtual void unpack(Tensor packed, Tensor rows) = 0;

  // Rows of activations.
  virtual void embed(Tensor tokens, Tensor table, float scale, Tensor out) = 0;  // [n] i32, [vocab, dim] -> [n, dim]
  virtual void gather_rows(Tensor x, Tensor rows, Tensor out) = 0;               // out[i] = x[rows[i]]; rows [n] i32
  virtual void rms_norm(Tensor x, Tensor weight, float eps, Tensor out) = 0;     // [n, dim], [dim] f32; out may be x
  virtual void rope(const RopeArgs& args) = 0;
  virtual void gated(Activation kind, Tensor gate, Tensor up, Tensor out) = 0;  // act(gate) * up; out may be gate
  virtual void add(Tensor x, Tensor y) = 0;                                     // x += y
  virtual void softcap(Tensor x, float cap) = 0;                                // x = cap * tanh(x / cap)
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void matmul_all(std::span<const MatmulArgs> products) = 0;  // of one x: as one after the other
  virtual void gated_matmul(const GatedMatmulArgs& args) = 0;

  // Mixture of experts.
  virtual void route(const RouteArgs& args) = 0;
  virtual void expert_matmul(const ExpertMatmulArgs& args) = 0;
  virtual void combine_experts(Tensor x, Tensor weights, Tensor out) = 0;  // out[t] = sum_j weights[t, j] * x[t*k + j]

  // The KV cache and attention.
  virtual void kv_write(const KvWriteArgs& args) = 0;
  virtual void kv_read(const KvReadArgs& args) = 0;
  virtual void kv_seal(const KvSealArgs& args) = 0;
  virtual void kv_copy_page(const KvFormat& format, std::byte* slab, PageId from, PageId to) = 0;
  // In order, between two slabs or inside one.
  virtual void kv_move(const KvFormat& format, std::byte* to, const std::byte* from, std::span<const KvMove> moves) = 0;
  virtual void kv_export(const KvFormat& format, const std::byte* slab, PageId page,
                         std::span<std::byte> canonical) = 0;
  virtual void kv_import(const KvFormat& format, std::byte* slab, PageId page,
                         std::span<const std::byte> canonical) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void finish_attention(const FinishAttentionArgs& args) = 0;
  virtual void merge_partials(const AttnPartial& into, const AttnPartial& from) = 0;  // into := into merged with from
  virtual void observe(const ObserveArgs& args) = 0;
};

// --- back-ends of this build

struct CpuOptions {
  int threads = 0;   // 0: the machine's best number (base/machine.h)
  std::string simd;  // "": best; else a name of cpu_simd_targets(), or "reference" for the reference kernels
};
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);
std::span<const std::string> cpu_simd_targets();  // what this machine runs, best first, without "reference"
// The best of them that multiplies in fp32 alone; better ones (those of AMX, AVX512_BF16, and those that multiply in 8
// bits) round operands.
const std::string& cpu_fp32_target();

// For tests: wraps a CPU back-end whose memory can be touched only while one of its operations runs.
Result<std::unique_ptr<Backend>> make_guarded_backend(const CpuOptions& options);

}  // namespace godwit
