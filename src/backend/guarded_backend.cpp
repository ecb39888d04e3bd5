// A CPU back-end whose memory is a GuardedArena: a layer that follows a Tensor's pointer outside an operation dies at
// once.
#include <cstring>

#include "backend/backend.h"
#include "backend/guarded_arena.h"

namespace godwit {
namespace {

// Address space costs nothing until it is used.
constexpr size_t kReserveBytes = size_t{32} << 30;

class GuardedBackend final : public Backend {
 public:
  GuardedBackend(std::unique_ptr<Backend> cpu, std::shared_ptr<GuardedArena> arena)
      : cpu_(std::move(cpu)), arena_(std::move(arena)) {}

  std::string name() const override { return "guarded"; }
  std::string description() const override { return "guarded " + cpu_->description(); }
  bool supports(DType weight) const override { return cpu_->supports(weight); }
  size_t memory_bytes() const override { return cpu_->memory_bytes(); }

  Result<Buffer> allocate(size_t bytes) override {
    std::byte* block = arena_->allocate(bytes);
    if (block == nullptr) return errorf(ErrorCode::kExhausted, "the guarded arena has no room for {} bytes", bytes);
    auto release = [arena = arena_](std::byte* memory) { arena->release(memory); };
    return Buffer{std::shared_ptr<std::byte>(block, release), bytes};
  }
  Result<Buffer> import_host(std::shared_ptr<const void>, std::span<const std::byte> bytes) override {
    GODWIT_ASSIGN(Buffer copy, allocate(bytes.size()));
    upload(copy.data(), bytes);
    return copy;
  }
  void upload(std::byte* to, std::span<const std::byte> from) override { run(&Backend::upload, to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override { run(&Backend::download, to, from); }
  void synchronize() override { cpu_->synchronize(); }

  void embed(Tensor tokens, Tensor table, float scale, Tensor out) override {
    run(&Backend::embed, tokens, table, scale, out);
  }
  void gather_rows(Tensor x, Tensor rows, Tensor out) override { run(&Backend::gather_rows, x, rows, out); }
  void rms_norm(Tensor x, Tensor weight, float eps, Tensor out) override {
    run(&Backend::rms_norm, x, weight, eps, out);
  }
  void rope(const RopeArgs& args) override { run(&Backend::rope, args); }
  void gated(Activation kind, Tensor gate, Tensor up, Tensor out) override {
    run(&Backend::gated, kind, gate, up, out);
  }
  void add(Tensor x, Tensor y) override { run(&Backend::add, x, y); }
  void softcap(Tensor x, float cap) override { run(&Backend::softcap, x, cap); }
  void matmul(const MatmulArgs& args) override { run(&Backend::matmul, args); }

  void route(const RouteArgs& args) override { run(&Backend::route, args); }
  void expert_matmul(const ExpertMatmulArgs& args) override { run(&Backend::expert_matmul, args); }
  void combine_experts(Tensor x, Tensor weights, Tensor out) override {
    run(&Backend::combine_experts, x, weights, out);
  }

  void kv_write(const KvWriteArgs& args) override { run(&Backend::kv_write, args); }
  void kv_copy_page(const KvFormat& format, std::byte* slab, PageId from, PageId to) override {
    run(&Backend::kv_copy_page, format, slab, from, to);
  }
  void kv_move(const KvFormat& format, std::byte* slab, std::span<const KvMove> moves) override {
    run(&Backend::kv_move, format, slab, moves);
  }
  void kv_export(const KvFormat& format, const std::byte* slab, PageId page, std::span<std::byte> canonical) override {
    run(&Backend::kv_export, format, slab, page, canonical);
  }
  void kv_import(const KvFormat& format, std::byte* slab, PageId page, std::span<const std::byte> canonical) override {
    run(&Backend::kv_import, format, slab, page, canonical);
  }
  void attention(const AttentionArgs& args) override { run(&Backend::attention, args); }
  void merge_partials(const AttnPartial& into, const AttnPartial& from) override {
    run(&Backend::merge_partials, into, from);
  }

 private:
  // The operation of the CPU back-end, with the arena open around it.
  template <class... Parameters, class... Args>
  void run(void (Backend::*operation)(Parameters...), const Args&... args) {
    arena_->open();
    (cpu_.get()->*operation)(args...);
    arena_->close();
  }

  std::unique_ptr<Backend> cpu_;
  std::shared_ptr<GuardedArena> arena_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_guarded_backend(const CpuOptions& options) {
  GODWIT_ASSIGN(auto cpu, make_cpu_backend(options));
  GODWIT_ASSIGN(auto arena, GuardedArena::make(kReserveBytes));
  return std::make_unique<GuardedBackend>(std::move(cpu), std::move(arena));
}

}  // namespace godwit
