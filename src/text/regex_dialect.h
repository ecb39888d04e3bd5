// Translates a regular expression from Oniguruma's dialect (which the `tokenizers` library speaks) to PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include <godwit/status.h>

namespace godwit {

// Gives an error for what has no equal: class intersections, negated classes inside a class, escapes whose meaning
// differs.
Result<std::string> onig_to_pcre(std::string_view pattern, std::string_view label);

}  // namespace godwit
