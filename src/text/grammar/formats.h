// Formats of strings that JSON schemas name, as patterns; each gives a part of what the format allows.
#pragma once

#include <string_view>

namespace godwit {

std::string_view format_pattern(std::string_view name);  // empty: not known

}  // namespace godwit
