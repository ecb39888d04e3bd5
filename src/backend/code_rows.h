// Rows of codes of 2, 4 or 8 bits that vectors read in order: with n = 8 / bits codes to a byte, byte i of a row of
// `count` holds the codes i, i + count / n, i + 2 count / n ..., from the lowest bits on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace godwit {

inline size_t code_row_bytes(int bits, size_t count) {
  return count * static_cast<size_t>(bits) / 8;
}

inline uint8_t code_in_row(const std::byte* row, int bits, size_t count, size_t i) {
  const size_t bytes = code_row_bytes(bits, count);
  return static_cast<uint8_t>(static_cast<unsigned>(row[i % bytes]) >> (i / bytes * static_cast<size_t>(bits)) &
                              ((1u << bits) - 1));
}

// codes[count], one per byte.
inline void write_code_row(const uint8_t* codes, int bits, size_t count, std::byte* row) {
  const size_t bytes = code_row_bytes(bits, count);
  for (size_t i = 0; i < bytes; ++i) {
    unsigned byte = 0;
    for (size_t field = 0; field * static_cast<size_t>(bits) < 8; ++field)
      byte |= static_cast<unsigned>(codes[i + field * bytes]) << (field * static_cast<size_t>(bits));
    row[i] = static_cast<std::byte>(byte);
  }
}

}  // namespace godwit
