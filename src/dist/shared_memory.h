// Memory of one rank that the other ranks on its host read and write where it lies.
//
// Ranks show each other theirs once, collectively; from then on one needs to be told what is where, and when: nobody
// may change it while somebody reads. What is on another host, or may not be mapped (another user,
// another process namespace), is not shared, and both ends know it.
#pragma once

#include <memory>
#include <vector>

#include "dist/transport.h"

namespace godwit::dist {

class SharedMemory {
 public:
  // Costs nothing until it is written to.
  static Result<SharedMemory> create(size_t bytes);

  const std::shared_ptr<std::byte>& memory() const { return memory_; }  // mapped as long as someone has it
  size_t bytes() const { return bytes_; }
  int descriptor() const { return *descriptor_; }
  // The memory itself, whoever still has it mapped: for when others cannot be told to let go.
  void give_back() const;

 private:
  std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0;
  std::shared_ptr<const int> descriptor_;
};

// Who reads whose memory. By default nobody does.
struct SharedView {
  // As this rank sees them: rank r's memory, where it reads it, at r * stride; its own, too. Null if it shows nothing.
  std::shared_ptr<std::byte> base;
  size_t stride = 0;
  std::vector<std::vector<uint8_t>> readers;  // [owner][reader]

  bool reads(int reader, int owner) const {
    return !readers.empty() && readers[static_cast<size_t>(owner)][static_cast<size_t>(reader)] != 0;
  }
  bool everybody_reads_all() const;
};

// On every rank; `own` is null on one that has nothing to show, and then it reads nothing, as its own memory is not in
// the view. The stride is a multiple of `unit_bytes`.
Result<SharedView> share(Transport& transport, const SharedMemory* own, size_t unit_bytes);

}  // namespace godwit::dist
