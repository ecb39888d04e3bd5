// Characters of UTF-8 text as Python sees them: code points, whitespace, case, printability. A byte that is not part of
// valid UTF-8 counts as one character and is kept as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::jinja {

constexpr uint32_t kBadByte = 0x110000;  // added to an invalid byte's value

struct Character {
  uint32_t code;  // code point, or kBadByte + the byte
  size_t bytes;
};

Character decode_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, uint32_t code);
bool is_ascii(std::string_view text);
size_t count_characters(std::string_view text);
std::vector<std::string_view> split_characters(std::string_view text);

bool is_space(uint32_t code);
bool is_printable(uint32_t code);
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
inline bool is_cased(uint32_t code) {
  return is_upper(code) || is_lower(code);
}

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // each run of cased letters: first upper, rest lower
std::string to_capitalized(std::string_view text);  // first character upper, rest lower

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace godwit::jinja
