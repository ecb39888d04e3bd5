#include "backend/guarded_arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace godwit {

Result<std::shared_ptr<GuardedArena>> GuardedArena::make(size_t reserve_bytes) {
  void* base = mmap(nullptr, reserve_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return errorf(ErrorCode::kExhausted, "the system refused {} bytes of address space: {}", reserve_bytes,
                  std::strerror(errno));
  return std::shared_ptr<GuardedArena>(new GuardedArena(static_cast<std::byte*>(base), reserve_bytes));
}

GuardedArena::~GuardedArena() {
  munmap(base_, reserved_bytes_);
}

std::byte* GuardedArena::allocate(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  if (bytes > reserved_bytes_) return nullptr;
  const size_t rounded = std::max(page, (bytes + page - 1) / page * page);
  size_t offset = 0;  // the first gap that is wide enough
  for (const auto& [taken, size] : taken_) {
    if (taken - offset >= rounded) break;
    offset = taken + size;
  }
  if (rounded > reserved_bytes_ - offset) return nullptr;
  std::byte* block = base_ + offset;
  if (mprotect(block, rounded, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(block, 0xff, rounded);
  taken_.emplace(offset, rounded);
  used_bytes_ = std::max(used_bytes_, offset + rounded);
  close();
  return block;
}

void GuardedArena::release(std::byte* block) {
  const auto found = taken_.find(static_cast<size_t>(block - base_));
  GODWIT_CHECK(found != taken_.end());
  madvise(block, found->second, MADV_DONTNEED);
  taken_.erase(found);
}

void GuardedArena::protect(bool accessible) {
  if (used_bytes_ == 0) return;
  const int failed = mprotect(base_, used_bytes_, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  GODWIT_CHECK(failed == 0, "mprotect: {}", std::strerror(errno));
}

}  // namespace godwit
