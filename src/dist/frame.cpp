#include "dist/frame.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace godwit::dist {
namespace {

constexpr uint32_t kMagic = 0x31545747;  // "GWT1"

struct Header {
  uint32_t magic = kMagic, kind = 0;
  uint64_t token = 0, bytes = 0, checksum = 0;
  int64_t due = 0;
};
static_assert(sizeof(Header) <= Frame::kHeaderBytes);

}  // namespace

std::string_view frame_kind_name(FrameKind kind) {
  constexpr std::array<std::string_view, kFrameKinds> kNames = {
      "greeting",     "command", "reply", "new keys and values",  "keys and values", "queries",
      "partial sums", "logits",  "probe", "moved keys and values"};
  return kNames[static_cast<size_t>(kind)];
}

// Four lanes, so that the multiplications of one do not wait for those of another.
uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  std::array<uint64_t, 4> lanes = {1, 2, 3, 4};
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 32; at += 32, left -= 32) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), at, 32);
    for (size_t i = 0; i < 4; ++i) lanes[i] = std::rotl((lanes[i] ^ words[i]) * kOdd, 29);
  }
  std::array<uint64_t, 4> rest{};
  if (left > 0) std::memcpy(rest.data(), at, left);
  uint64_t sum = bytes.size();
  for (size_t i = 0; i < 4; ++i) sum = std::rotl((sum ^ lanes[i] ^ rest[i]) * kOdd, 31);
  return sum;
}

// Of header and payload, but for itself.
uint64_t Frame::sum(size_t bytes) const {
  std::array<std::byte, kHeaderBytes> header;
  std::memcpy(header.data(), memory_.data(), kHeaderBytes);
  std::fill_n(header.begin() + offsetof(Header, checksum), sizeof(Header::checksum), std::byte{0});
  return std::rotl(checksum(header), 32) ^ checksum(std::span(memory_).subspan(kHeaderBytes, bytes));
}

void Frame::seal(FrameKind kind, uint64_t token, size_t bytes, int64_t due) {
  reserve(bytes);
  Header header;
  header.kind = static_cast<uint32_t>(kind);
  header.token = token;
  header.bytes = bytes;
  header.due = due;
  std::memcpy(memory_.data(), &header, sizeof(header));
  header.checksum = sum(bytes);
  std::memcpy(memory_.data(), &header, sizeof(header));
}

int64_t Frame::due() const {
  Header header;
  std::memcpy(&header, memory_.data(), sizeof(header));
  return header.due;
}

Status Frame::check(FrameKind kind, uint64_t token, size_t bytes, size_t arrived) {
  auto bad = [&](std::string_view what) {
    return errorf(ErrorCode::kBadData, "a frame of {} {}", frame_kind_name(kind), what);
  };
  if (arrived < kHeaderBytes) return bad("is shorter than its header");
  Header header;
  std::memcpy(&header, memory_.data(), sizeof(header));
  if (header.magic != kMagic) return bad("does not begin like one");
  if (header.token != token) return bad("carries the token of another job");
  if (header.kind != static_cast<uint32_t>(kind))
    return bad(fmt::format("was expected, one of kind {} came", header.kind));
  if (header.bytes != bytes || arrived != kHeaderBytes + bytes)
    return bad(fmt::format("has {} bytes instead of {}", arrived - kHeaderBytes, bytes));
  if (header.checksum != sum(bytes)) return bad("was damaged on its way");
  return {};
}

}  // namespace godwit::dist
