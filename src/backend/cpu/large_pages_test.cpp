// Large memory is asked for in large pages. Nothing else would notice if it were not: only the time changes.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"

namespace godwit::cpu {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;

// The kernel's flags of the mapping that holds an address ("rd wr mr mw me ac hg"); empty: there is no such record.
std::string flags_at(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-')
      inside = begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    if (inside && line.rfind("VmFlags:", 0) == 0) return line.substr(8) + " ";
  }
  return {};
}

// Why this system cannot say, or nothing.
std::string no_answer() {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"))
    return "this kernel has no transparent large pages";
  int local = 0;
  return flags_at(&local).empty() ? "/proc/self/smaps has no VmFlags here" : "";
}

void expect_large_pages(const std::byte* memory, size_t bytes) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kLargePage, 0U) << bytes << " bytes";
  for (const std::byte* at : {memory, memory + bytes - 1})
    EXPECT_NE(flags_at(at).find(" hg "), std::string::npos) << bytes << " bytes:" << flags_at(at);
}

TEST(LargePages, AreAskedForWhereTensorsAndScratchAreLarge) {
  if (const std::string why = no_answer(); !why.empty()) GTEST_SKIP() << why;
  auto backend = make_cpu_backend({.threads = 1, .simd = {}});
  ASSERT_TRUE(backend.has_value());
  for (size_t bytes : {size_t{256} << 10, kLargePage, 3 * kLargePage + 64}) {
    const Buffer buffer = aligned_buffer(bytes);
    expect_large_pages(buffer.data(), bytes);
    auto tensor = (*backend)->allocate(bytes);
    ASSERT_TRUE(tensor.has_value());
    expect_large_pages(tensor->data(), bytes);
  }
  Context context(2);
  expect_large_pages(context.shared_scratch(kLargePage), kLargePage);
  expect_large_pages(context.scratch(1, kLargePage), kLargePage);
}

}  // namespace
}  // namespace godwit::cpu
