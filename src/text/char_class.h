// Classes of Unicode characters that tokenizers ask for, as Rust's `char` and the `tokenizers` library define them.
#pragma once

#include <cstddef>
#include <string_view>

namespace godwit {

bool is_space_char(char32_t c);        // White_Space
bool is_numeric_char(char32_t c);      // Nd, Nl, No
bool is_punctuation_char(char32_t c);  // ASCII punctuation and symbols, and any P
bool is_word_char(char32_t c);         // letters, marks, digits, connectors, joiners

}  // namespace godwit
