// Address space whose bytes can be touched only between open() and close().
//
// One reservation is cut into blocks of whole OS pages; open() and close() change the protection of everything ever
// handed out with one system call. Fresh blocks are filled with 0xff (NaN in every float type), so that nobody relies
// on zeros. Blocks are plain addresses; the arena must outlive them. Not thread-safe, as a Backend is not.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "base/result.h"

namespace godwit {

class GuardedArena {
 public:
  static Result<std::shared_ptr<GuardedArena>> make(size_t reserve_bytes);
  ~GuardedArena();
  GuardedArena(const GuardedArena&) = delete;
  GuardedArena& operator=(const GuardedArena&) = delete;

  std::byte* allocate(size_t bytes);  // null when the reservation or the system is exhausted
  void release(std::byte* block);

  void open() { protect(true); }
  void close() { protect(false); }

 private:
  GuardedArena(std::byte* base, size_t bytes) : base_(base), reserved_bytes_(bytes) {}
  void protect(bool accessible);

  std::byte* base_;
  size_t reserved_bytes_;
  size_t used_bytes_ = 0;           // everything below was handed out at some time
  std::map<size_t, size_t> taken_;  // offset -> bytes
};

}  // namespace godwit
