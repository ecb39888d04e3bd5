#include "backend/cpu/interleave.h"

#if defined(__linux__)
#include <climits>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace godwit::cpu {

bool interleave(const Buffer& buffer, const std::vector<int>& nodes) {
#if defined(__linux__)
  constexpr size_t kLargePage = size_t{2} << 20, kMostNodes = 1024, kBits = sizeof(unsigned long) * CHAR_BIT;
  const size_t bytes = buffer.bytes / kLargePage * kLargePage;
  if (nodes.empty() || bytes == 0) return false;
  unsigned long mask[kMostNodes / kBits] = {};
  for (int node : nodes)
    if (const auto bit = static_cast<size_t>(node); bit < kMostNodes) mask[bit / kBits] |= 1UL << bit % kBits;
  return syscall(SYS_mbind, buffer.data(), bytes, MPOL_INTERLEAVE, mask, kMostNodes + 1, 0) == 0;
#else
  return false;
#endif
}

}  // namespace godwit::cpu
