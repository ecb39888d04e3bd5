// What travels between ranks: a header and bytes, checked on receipt.
//
// A frame owns its memory, header in front, so that a message is one piece and a buffer is allocated once for many
// messages. A sealed frame may be sent to any number of ranks. Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace godwit::dist {

enum class FrameKind : uint32_t {
  kHello,    // the job's token, from rank 0
  kCommand,  // what rank 0 wants done
  kReply,    // how it went
  kSlots,    // K and V of new tokens, to the rank that keeps them, or, empty, word that they are written there
  kPages,    // K and V of a segment, or where they lie in memory that the ranks share
  kQueries,
  kStates,  // what a rank's segments add to others' queries
  kLogits,
  kProbe,  // to measure a link
  kMoved,  // K and V of a segment that another rank keeps from now on
};
inline constexpr size_t kFrameKinds = 10;

std::string_view frame_kind_name(FrameKind kind);  // "keys and values", for messages

// Not for secrets: it tells a damaged message from a whole one.
uint64_t checksum(std::span<const std::byte> bytes);

class Frame {
 public:
  static constexpr size_t kHeaderBytes = 64;

  explicit Frame(size_t bytes = 0) { reserve(bytes); }
  void reserve(size_t bytes) {
    if (memory_.size() < kHeaderBytes + bytes) memory_.resize(kHeaderBytes + bytes);
  }
  std::span<std::byte> payload(size_t bytes) {
    reserve(bytes);
    return std::span(memory_).subspan(kHeaderBytes, bytes);
  }
  // Header and payload.
  std::span<std::byte> whole(size_t bytes) {
    reserve(bytes);
    return std::span(memory_).first(kHeaderBytes + bytes);
  }

  // Writes the header. `due` is a time of the sender's making (Transport's shaped links).
  void seal(FrameKind kind, uint64_t token, size_t bytes, int64_t due = 0);
  // Whether what arrived in this frame, `arrived` bytes with the header, is what was expected.
  Status check(FrameKind kind, uint64_t token, size_t bytes, size_t arrived);
  int64_t due() const;

 private:
  uint64_t sum(size_t bytes) const;

  std::vector<std::byte> memory_;
};

}  // namespace godwit::dist
