#include "backend/cpu/interleave.h"

#include <climits>

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/kernels.h"

namespace godwit::cpu {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

int policy_at(const std::byte* address) {
  int policy = -1;
  unsigned long nodes[16] = {};
  const long done = syscall(SYS_get_mempolicy, &policy, nodes, sizeof(nodes) * CHAR_BIT, address, MPOL_F_ADDR);
  return done == 0 ? policy : -1;
}

TEST(Interleave, DealsTheWholeBufferToTheNodes) {
  const Buffer plain = aligned_buffer(4 * kLargePage), dealt = aligned_buffer(4 * kLargePage);
  if (policy_at(plain.data()) != MPOL_DEFAULT) GTEST_SKIP() << "this system tells no memory policy, or has its own";
  ASSERT_TRUE(interleave(dealt, {0}));
  EXPECT_EQ(policy_at(dealt.data()), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_at(dealt.data() + dealt.bytes - 1), MPOL_INTERLEAVE);
  EXPECT_EQ(policy_at(plain.data()), MPOL_DEFAULT);
}

TEST(Interleave, LeavesMemoryAloneWithoutNodesOrLargePages) {
  const Buffer buffer = aligned_buffer(kLargePage), small = aligned_buffer(kLargePage - 1);
  EXPECT_FALSE(interleave(buffer, {}));
  EXPECT_FALSE(interleave(small, {0}));
  EXPECT_FALSE(interleave(buffer, {1023})) << "no machine has that node";
  EXPECT_FALSE(interleave(buffer, {1 << 20}));
  EXPECT_NE(policy_at(buffer.data()), MPOL_INTERLEAVE);
}

}  // namespace
}  // namespace godwit::cpu
