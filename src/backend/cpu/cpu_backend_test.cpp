// What the system refuses is an error.
#include <gtest/gtest.h>
#include <pthread.h>

#include "backend/backend.h"

namespace godwit {
namespace {

TEST(CpuBackendDeathTest, ThreadsThatAreRefusedAreAnError) {
  const auto open_with_large_stacks = [] {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    // More than there are addresses, for three threads beside this one.
    if (pthread_attr_setstacksize(&attributes, size_t{1} << 46) != 0) std::exit(3);
    if (pthread_setattr_default_np(&attributes) != 0) std::exit(3);
    const auto backend = make_cpu_backend({.threads = 4, .simd = ""});
    if (backend) std::exit(4);
    std::fprintf(stderr, "%s", backend.error().message.c_str());
    std::exit(backend.error().code == ErrorCode::kExhausted ? 0 : 5);
  };
  EXPECT_EXIT(open_with_large_stacks(), testing::ExitedWithCode(0), "refuses a thread.*--threads");
}

}  // namespace
}  // namespace godwit
