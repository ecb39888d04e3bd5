#include "text/byte_map.h"

#include <array>

#include "text/utf8.h"

namespace godwit {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> kCharOfByte = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) table[byte] = stands_for_itself(byte) ? char32_t(byte) : next++;
  return table;
}();

constexpr std::array<int16_t, 0x144> kByteOfChar = [] {
  std::array<int16_t, 0x144> table{};
  for (auto& entry : table) entry = -1;
  for (int byte = 0; byte < 256; ++byte) table[kCharOfByte[byte]] = static_cast<int16_t>(byte);
  return table;
}();

}  // namespace

char32_t byte_to_char(uint8_t byte) {
  return kCharOfByte[byte];
}

std::optional<std::string> chars_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid || c.code_point >= kByteOfChar.size() || kByteOfChar[c.code_point] < 0) return std::nullopt;
    out += static_cast<char>(kByteOfChar[c.code_point]);
    pos += c.length;
  }
  return out;
}

std::string bytes_to_chars(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) utf8_append(out, byte_to_char(static_cast<uint8_t>(c)));
  return out;
}

}  // namespace godwit
