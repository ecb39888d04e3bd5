// Small UTF-8 helpers over bytes that may be broken. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace godwit {

// One step through a text. Broken input gives code_point U+FFFD, valid = false and the length of the "maximal subpart"
// that Unicode recommends to replace by one U+FFFD. REQUIRES: pos < text.size().
struct Utf8Char {
  char32_t code_point;
  size_t length;
  bool valid;
};
Utf8Char utf8_at(std::string_view text, size_t pos);

// Where the longest valid stretch that starts at `pos` ends.
size_t utf8_valid_end(std::string_view text, size_t pos);

// How many bytes at the end could be the beginning of a character whose rest has not arrived: 0 to 3.
size_t utf8_incomplete_tail(std::string_view text);

void utf8_append(std::string& out, char32_t code_point);

// The text with every broken sequence replaced by U+FFFD.
std::string utf8_lossy(std::string_view text);

}  // namespace godwit
