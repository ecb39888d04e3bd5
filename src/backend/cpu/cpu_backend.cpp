// The CPU back-end: host memory, and the kernels of one SIMD target. Operations finish before they return.
#include <algorithm>
#include <cstring>

#include "backend/cpu/host_memory.h"
#include "backend/cpu/interleave.h"
#include "backend/cpu/kernels.h"

namespace godwit {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(cpu::Kernels kernels, int threads) : kernels_(std::move(kernels)), context_(threads) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    const std::string& where = context_.pool.placement().text;
    return fmt::format("CPU, {}, {} thread{}{}{}{}", kernels_.target, threads(), threads() == 1 ? "" : "s",
                       where.empty() ? "" : " ", where, interleaved_ ? ", memory interleaved" : "");
  }
  int threads() const override { return context_.pool.threads(); }
  bool supports(DType weight) const override { return weight != DType::kI32; }
  size_t memory_bytes() const override { return cpu::available_memory_bytes(); }

  Result<Buffer> allocate(size_t bytes) override {
    Buffer buffer = cpu::aligned_buffer(bytes);
    if (!buffer.memory) return errorf(ErrorCode::kExhausted, "the system has no memory for a block of {} bytes", bytes);
    interleaved_ |= cpu::interleave(buffer, context_.pool.placement().nodes);
    return buffer;
  }
  Result<Buffer> import_host(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) override {
    auto* data = const_cast<std::byte*>(bytes.data());
    return Buffer{std::shared_ptr<std::byte>(std::const_pointer_cast<void>(std::move(owner)), data), bytes.size()};
  }
  void upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void download(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }
  void synchronize() override {}
  bool can_pack(const Tensor& rows) const override { return kernels_.can_pack != nullptr && kernels_.can_pack(rows); }
  void pack(Tensor rows, Tensor packed) override { kernels_.pack(context_, rows, packed); }
  void unpack(Tensor packed, Tensor rows) override { kernels_.unpack(context_, packed, rows); }

  void embed(Tensor tokens, Tensor table, float scale, Tensor out) override {
    kernels_.embed(context_, tokens, table, scale, out);
  }
  void gather_rows(Tensor x, Tensor rows, Tensor out) override { kernels_.gather_rows(context_, x, rows, out); }
  void rms_norm(Tensor x, Tensor weight, float eps, Tensor out) override {
    kernels_.rms_norm(context_, x, weight, eps, out);
  }
  void rope(const RopeArgs& args) override { kernels_.rope(context_, args); }
  void gated(Activation kind, Tensor gate, Tensor up, Tensor out) override {
    kernels_.gated(context_, kind, gate, up, out);
  }
  void add(Tensor x, Tensor y) override { kernels_.add(context_, x, y); }
  void softcap(Tensor x, float cap) override { kernels_.softcap(context_, x, cap); }
  void matmul(const MatmulArgs& args) override {
    (kernels_.in_fp32(args.w.dtype) ? kernels_.matmul_f32 : kernels_.matmul)(context_, args);
  }
  void matmul_all(std::span<const MatmulArgs> products) override {
    const auto in_fp32 = [&](const MatmulArgs& args) { return kernels_.in_fp32(args.w.dtype); };
    if (kernels_.matmul_all != nullptr && std::none_of(products.begin(), products.end(), in_fp32))
      return kernels_.matmul_all(context_, products);
    for (const MatmulArgs& args : products) matmul(args);
  }
  void gated_matmul(const GatedMatmulArgs& args) override {
    const MatmulArgs gate{.x = args.x, .w = args.gate_w, .bias = args.gate_bias, .y = args.y, .phase = args.phase};
    MatmulArgs up{.x = args.x, .w = args.up_w, .bias = args.up_bias, .y = args.y, .phase = args.phase};
    if (kernels_.gated_matmul != nullptr && !kernels_.in_fp32(gate.w.dtype) && !kernels_.in_fp32(up.w.dtype))
      return kernels_.gated_matmul(context_, gate, up, kernels_.gated_row(args.activation));
    up.y = args.spare;
    matmul(gate);
    matmul(up);
    gated(args.activation, args.y, args.spare, args.y);
  }

  void route(const RouteArgs& args) override { kernels_.route(context_, args); }
  void expert_matmul(const ExpertMatmulArgs& args) override {
    (kernels_.in_fp32(args.w.dtype) ? kernels_.expert_matmul_f32 : kernels_.expert_matmul)(context_, args);
  }
  void combine_experts(Tensor x, Tensor weights, Tensor out) override {
    kernels_.combine_experts(context_, x, weights, out);
  }

  void kv_write(const KvWriteArgs& args) override { kernels_.kv_write(context_, args); }
  void kv_read(const KvReadArgs& args) override { cpu::kv_read(context_, args); }
  void kv_seal(const KvSealArgs& args) override { cpu::kv_seal(context_, args); }
  void kv_copy_page(const KvFormat& format, std::byte* slab, PageId from, PageId to) override {
    size_t bytes = format.page_bytes();
    std::memcpy(slab + to * bytes, slab + from * bytes, bytes);
  }
  void kv_move(const KvFormat& format, std::byte* to, const std::byte* from, std::span<const KvMove> moves) override {
    cpu::kv_move(format, to, from, moves);
  }
  void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) override {
    cpu::kv_export(format, slab, page, canonical);
  }
  void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical) override {
    cpu::kv_import(format, slab, page, canonical);
  }
  void attention(const AttentionArgs& args) override {
    (args.format.dtype == DType::kF32 ? kernels_.attention_f32 : kernels_.attention)(context_, args);
  }
  void finish_attention(const FinishAttentionArgs& args) override {
    (args.format.dtype == DType::kF32 ? kernels_.finish_attention_f32 : kernels_.finish_attention)(context_, args);
  }
  void merge_partials(const AttnPartial& into, const AttnPartial& from) override {
    kernels_.merge_partials(context_, into, from);
  }
  void observe(const ObserveArgs& args) override { kernels_.observe(context_, args); }

 private:
  cpu::Kernels kernels_;
  cpu::Context context_;
  bool interleaved_ = false;  // some memory lies on several nodes
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  GODWIT_TRY(check_threads(options.threads));
  GODWIT_ASSIGN(cpu::Kernels kernels, cpu::kernels_for(options.simd));
  try {
    return std::make_unique<CpuBackend>(std::move(kernels), options.threads);
  } catch (const std::system_error& error) {
    return tl::unexpected(refused_threads(error));
  }
}

}  // namespace godwit
