// A cursor over little-endian bytes that never reads past their end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace godwit {

static_assert(std::endian::native == std::endian::little, "file formats are read in place, little-endian");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // False, and nothing consumed, when too few bytes are left.
  template <class T>
  [[nodiscard]] bool read(T& value) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  [[nodiscard]] bool read(std::string_view& text, uint64_t length) {
    if (remaining() < length) return false;
    text = {reinterpret_cast<const char*>(bytes_.data() + position_), static_cast<size_t>(length)};
    position_ += static_cast<size_t>(length);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace godwit
