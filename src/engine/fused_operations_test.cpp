// The decoder asks for its fused operations, and the back-end has kernels for them. The results would be the same
// without: only the time changes.
#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"
#include "backend/wrapped_backend.h"
#include "engine/open.h"
#include "engine/test_engine.h"

namespace godwit {
namespace {

using namespace engine_test;

struct Calls {
  int steps = 0, alone = 0, into_residual = 0, of_one_x = 0, gated = 0, separate = 0;
  std::vector<size_t> products;  // of each matmul_all
};

class CountingBackend final : public WrappedBackend {
 public:
  CountingBackend(std::unique_ptr<Backend> inner, Calls& calls) : WrappedBackend(std::move(inner)), calls_(calls) {}

  void embed(Tensor tokens, Tensor table, float scale, Tensor out) override {
    ++calls_.steps;
    WrappedBackend::embed(tokens, table, scale, out);
  }
  void matmul(const MatmulArgs& args) override {
    ++(args.accumulate ? calls_.into_residual : calls_.alone);
    WrappedBackend::matmul(args);
  }
  void matmul_all(std::span<const MatmulArgs> products) override {
    calls_.products.push_back(products.size());
    WrappedBackend::matmul_all(products);
  }
  void gated_matmul(const GatedMatmulArgs& args) override {
    ++calls_.gated;
    WrappedBackend::gated_matmul(args);
  }
  void gated(Activation kind, Tensor gate, Tensor up, Tensor out) override {
    ++calls_.separate;
    WrappedBackend::gated(kind, gate, up, out);
  }
  void add(Tensor x, Tensor y) override {
    ++calls_.separate;
    WrappedBackend::add(x, y);
  }

 private:
  void before() override {}
  void after(Kind) override {}
  Calls& calls_;
};

TEST(FusedOperations, ServeEveryLayerOfAStep) {
  constexpr int kLayers = 2;  // of the tiny models
  for (const char* model : {"llama", "qwen3"}) {
    SCOPED_TRACE(model);
    Calls calls;
    auto cpu = value_of(make_cpu_backend({.threads = 1, .simd = {}}));
    const Engine engine =
        value_of(open_engine(options_for(model), std::make_unique<CountingBackend>(std::move(cpu), calls)));
    cold(engine, prompt(20), 3);
    ASSERT_GE(calls.steps, 3);  // the prompt, then token by token
    EXPECT_EQ(calls.products, std::vector<size_t>(static_cast<size_t>(calls.steps * kLayers), 3)) << "Q, K and V";
    EXPECT_EQ(calls.gated, calls.steps * kLayers) << "gate and up";
    EXPECT_EQ(calls.into_residual, calls.steps * kLayers * 2) << "the last product of each block";
    EXPECT_EQ(calls.alone, 3) << "logits";
    EXPECT_EQ(calls.separate, 0);
  }
}

TEST(FusedOperations, HaveKernelsOnTheTargetsThatPackX) {
  for (const char* target :
       {"AMX_BF16", "AVX512_BF16", "AVX512_VNNI", "AVX512_INT8", "AVX_VNNI", "AVX2_INT8", "AMX_EMULATED"}) {
    auto kernels = cpu::kernels_for(target);
    if (!kernels) continue;  // not on this machine
    EXPECT_NE(kernels->matmul_all, nullptr) << target;
    EXPECT_NE(kernels->gated_matmul, nullptr) << target;
  }
}

}  // namespace
}  // namespace godwit
