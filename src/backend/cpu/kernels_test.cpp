// A table has the kernels of its target, whatever other threads do meanwhile.
#include "backend/cpu/kernels.h"

#include <thread>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cpu/to_f16.h"

namespace godwit::cpu {
namespace {

TEST(Kernels, AreThoseOfTheTargetWhileOthersDispatch) {
  const auto kernels = [](const std::string& target) {
    const Result<Kernels> table = kernels_for(target);
    EXPECT_TRUE(table.has_value());
    return std::tuple(table->attention, table->matmul, table->rms_norm, table->observe);
  };
  std::vector<std::string> targets(cpu_simd_targets().begin(), cpu_simd_targets().end());
  std::vector<decltype(kernels(""))> want;
  for (const std::string& target : targets) want.push_back(kernels(target));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < targets.size(); ++i)
    threads.emplace_back([&, i] {
      const float number = 1.5F;
      uint16_t half = 0;
      for (int again = 0; again < 20'000; ++again) {
        to_f16(&number, &half, 1);
        ASSERT_EQ(kernels(targets[i]), want[i]) << targets[i];
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace godwit::cpu
