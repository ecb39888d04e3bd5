// How much memory this process can still get.
#pragma once

#include <cstddef>
#include <filesystem>

namespace godwit::cpu {

// What the system calls available, or what the cgroups (v1, v2) that hold this process leave of their limits if that is
// less; 0 = unknown. Caches of files count as free, as the system gives them up when memory is wanted: a model that is
// mapped needs its bytes once. Reads below `root`, which is "/" outside tests.
size_t available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace godwit::cpu
