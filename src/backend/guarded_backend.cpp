// A CPU back-end whose memory is a GuardedArena: a layer that follows a Tensor's pointer outside an operation dies at
// once.
#include "backend/guarded_arena.h"
#include "backend/wrapped_backend.h"

namespace godwit {
namespace {

// Address space costs nothing until it is used.
constexpr size_t kReserveBytes = size_t{32} << 30;

class GuardedBackend final : public WrappedBackend {
 public:
  GuardedBackend(std::unique_ptr<Backend> cpu, std::shared_ptr<GuardedArena> arena)
      : WrappedBackend(std::move(cpu)), arena_(std::move(arena)) {}

  std::string name() const override { return "guarded"; }
  std::string description() const override { return "guarded " + WrappedBackend::description(); }

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

 private:
  void before() override { arena_->open(); }
  void after(Kind) override { arena_->close(); }

  std::shared_ptr<GuardedArena> arena_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_guarded_backend(const CpuOptions& options) {
  GODWIT_ASSIGN(auto cpu, make_cpu_backend(options));
  GODWIT_ASSIGN(auto arena, GuardedArena::make(kReserveBytes));
  return std::make_unique<GuardedBackend>(std::move(cpu), std::move(arena));
}

}  // namespace godwit
