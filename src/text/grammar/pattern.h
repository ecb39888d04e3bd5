// The `pattern` of a JSON schema: regular expressions in the part of ECMA 262's syntax that describes sets of texts.
//
// Literals, `.`, classes, \d \w \s and their negations, groups, alternatives, the quantifiers * + ? {n} {n,} {n,m} (a
// lazy mark after them changes nothing about the set and is passed over), ^ at the start and $ at the end of the whole
// pattern or of one of its alternatives. Anything else (look-around, back references, \b, \p, flags) is an error.
//
// What is built matches a part of what the pattern matches where engines disagree: \d and \w and \s are ASCII, their
// negations are printable ASCII, and neither `.` nor a negated class gives control characters.
#pragma once

#include <string_view>

#include "text/grammar/builder.h"

namespace godwit {

// From `from` to `to`: the characters between the quotes of a JSON string whose value the pattern matches. Every
// character is written in one way: itself, or the short escape, or \u00XX.
Status add_json_pattern(GrammarBuilder& builder, std::string_view pattern, GrammarBuilder::Node from,
                        GrammarBuilder::Node to);

// One character of a JSON string's value that lies between the two, written as above.
void add_json_character(GrammarBuilder& builder, char32_t first, char32_t last, GrammarBuilder::Node from,
                        GrammarBuilder::Node to);

}  // namespace godwit
