// The alphabet of byte-level BPE: every byte has a visible character, so that vocabularies can be written as text.
// Printable bytes stand for themselves; the other 68 are U+0100 onwards in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace godwit {

char32_t byte_to_char(uint8_t byte);
// Fails (nullopt) when a character is not in the alphabet.
std::optional<std::string> chars_to_bytes(std::string_view text);
std::string bytes_to_chars(std::string_view bytes);

}  // namespace godwit
