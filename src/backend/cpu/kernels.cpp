#include "backend/cpu/kernels.h"

#include <cstdlib>

#include <hwy/highway.h>
#include <hwy/targets.h>
#include <sys/mman.h>

#include "backend/cpu/features.h"

namespace godwit {
namespace cpu {
namespace {

int64_t target_bit(const std::string& name) {
  for (int64_t bit : hwy::SupportedAndGeneratedTargets())
    if (name == hwy::TargetName(bit)) return bit;
  return 0;
}

// Targets that take every operation from one of Highway's and replace some, best first.
struct Extension {
  const char* name;
  bool (*available)();
  bool listed;
  void (*fill)(Kernels&);
  const char* base = nullptr;  // null: the best of Highway's
};
constexpr Extension kExtensions[] = {
    {"AMX_INT8", has_amx, true,
     [](Kernels& table) {
       fill_matmul_amx_int8(table);
       fill_attention_amx(table);
     }},
    {"AMX_BF16", has_amx, true,
     [](Kernels& table) {
       fill_matmul_amx_bf16(table);
       fill_attention_amx(table);
     }},
    {"AVX512_BF16", has_avx512_bf16, true,
     [](Kernels& table) {
       fill_matmul_bf16(table);
       fill_attention_bf16(table);
     }},
    {"AVX512_VNNI", has_avx512_vnni, true, fill_matmul_vnni},
    {"AVX512_INT8", has_avx512, true, fill_matmul_avx512_int8},
    {"AVX_VNNI", has_avx_vnni, true, fill_matmul_avx_vnni, "AVX2"},
    {"AVX2_INT8", has_avx2, true, fill_matmul_avx2_int8, "AVX2"},
    {"AMX_EMULATED", has_avx512_bf16, false,
     [](Kernels& table) {
       fill_matmul_amx_emulated(table);
       fill_attention_amx_emulated(table);
     }},
};

const Extension* extension(const std::string& name) {
  for (const Extension& each : kExtensions)
    if (name == each.name && each.available()) return &each;
  return nullptr;
}

std::string join(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += name + ", ";
  return text + "reference";
}

}  // namespace

Buffer aligned_buffer(size_t bytes) {
  // With pages of 4 KiB, a tenth (products in tiles) to a fifth (long KV caches) of the time goes into addresses.
  constexpr size_t kLine = 64, kLargePage = size_t{2} << 20, kLarge = size_t{256} << 10;
  const size_t alignment = bytes >= kLarge ? kLargePage : kLine;
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) return {};
#if defined(__linux__)
  if (alignment == kLargePage) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return {std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }), bytes};
}

std::byte* Context::grow(Buffer& block, size_t bytes) {
  if (block.bytes < bytes) {
    block = aligned_buffer(bytes + bytes / 4);
    GODWIT_CHECK(block.data() != nullptr, "no memory for {} bytes of scratch", bytes);
  }
  return block.data();
}

Result<Kernels> kernels_for(const std::string& target) {
  Kernels table;
  fill_route(table);
  if (target == "reference") {
    table.target = target;
    fill_elementwise_ref(table);
    fill_matmul_ref(table);
    fill_attention_ref(table);
    fill_observe_ref(table);
    return table;
  }
  table.target = target.empty() ? cpu_simd_targets().front() : target;
  const Extension* extended = extension(table.target);
  int64_t bit = extended == nullptr         ? target_bit(table.target)
                : extended->base != nullptr ? target_bit(extended->base)
                                            : hwy::SupportedAndGeneratedTargets().front();
  if (bit == 0)
    return errorf(ErrorCode::kInvalidArgument, "this machine has no SIMD target '{}'; it has {}", target,
                  join(cpu_simd_targets()));
  fill_elementwise(table, bit);
  fill_matmul(table, bit);
  fill_attention(table, bit);
  fill_observe(table, bit);
  if (extended != nullptr) extended->fill(table);
  return table;
}

}  // namespace cpu

std::span<const std::string> cpu_simd_targets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const cpu::Extension& each : cpu::kExtensions)
      if (each.listed && each.available()) found.emplace_back(each.name);
    for (int64_t bit : hwy::SupportedAndGeneratedTargets()) found.emplace_back(hwy::TargetName(bit));
    return found;
  }();
  return names;
}

const std::string& cpu_fp32_target() {
  for (const std::string& name : cpu_simd_targets())
    if (cpu::extension(name) == nullptr) return name;
  GODWIT_CHECK(false, "Highway has a target for every machine");
}

}  // namespace godwit
