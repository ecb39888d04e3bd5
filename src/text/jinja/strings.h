// String work that methods and filters share; Python's rules, on UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace godwit::jinja {

enum class Side : uint8_t { kBoth, kLeft, kRight };

// Without `chars`, whitespace.
std::string_view strip(std::string_view text, const std::optional<std::string>& chars, Side side);
// At most `most` replacements; negative means all. An empty `from` matches between characters.
std::string replace(Heap& heap, std::string_view text, std::string_view from, std::string_view to, int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::vector<std::string_view> split_blanks(std::string_view text, int64_t most, bool from_right);
std::vector<std::string_view> split_on(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right);

}  // namespace godwit::jinja
