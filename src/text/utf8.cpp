#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace godwit {
namespace {

struct Lead {
  size_t length;          // of the whole character; 0 when no character starts with this byte
  uint8_t low, high;      // what the second byte may be (excludes overlong forms, surrogates, past U+10FFFF)
  char32_t leading_bits;  // the payload of the first byte
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0, byte};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, char32_t(byte & 0x1F)};
  if (byte < 0xF0) {
    return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF), char32_t(byte & 0x0F)};
  }
  if (byte < 0xF5) {
    return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF), char32_t(byte & 0x07)};
  }
  return {0, 0, 0, 0};
}

}  // namespace

Utf8Char utf8_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(pos));
  if (lead.length == 1) return {lead.leading_bits, 1, true};
  char32_t code_point = lead.leading_bits;
  for (size_t i = 1; i < lead.length; ++i) {
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (pos + i >= text.size() || byte(pos + i) < low || byte(pos + i) > high) return {0xFFFD, i, false};
    code_point = code_point << 6 | (byte(pos + i) & 0x3F);
  }
  if (lead.length == 0) return {0xFFFD, 1, false};
  return {code_point, lead.length, true};
}

size_t utf8_valid_end(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    if (pos + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + pos, 8);
      if ((word & 0x8080808080808080u) == 0) {
        pos += 8;
        continue;
      }
    }
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid) break;
    pos += c.length;
  }
  return pos;
}

size_t utf8_incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const Utf8Char c = utf8_at(text, text.size() - back);
    return !c.valid && c.length == back && lead_of(byte).length > back ? back : 0;
  }
  return 0;
}

void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string utf8_lossy(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = utf8_valid_end(text, pos);
    out.append(text, pos, end - pos);
    pos = end;
    if (pos == text.size()) break;
    out += "\xEF\xBF\xBD";
    pos += utf8_at(text, pos).length;
  }
  return out;
}

}  // namespace godwit
