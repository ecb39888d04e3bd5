#include "backend/timed_backend.h"

#include <chrono>

#include "backend/wrapped_backend.h"

namespace godwit {
namespace {

class TimedBackend final : public WrappedBackend {
 public:
  TimedBackend(std::unique_ptr<Backend> inner, OperationSeconds& seconds)
      : WrappedBackend(std::move(inner)), seconds_(seconds) {}

 private:
  void before() override { start_ = std::chrono::steady_clock::now(); }
  void after(Kind kind) override {
    synchronize();
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    (kind == Kind::kMatmul ? seconds_.matmul : kind == Kind::kAttention ? seconds_.attention : seconds_.other) += spent;
  }

  OperationSeconds& seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

std::unique_ptr<Backend> make_timed_backend(std::unique_ptr<Backend> backend, OperationSeconds& seconds) {
  return std::make_unique<TimedBackend>(std::move(backend), seconds);
}

}  // namespace godwit
