// Facts to plant in a text and to ask for: the sentence, the question, how the answer begins and what it must say.
#pragma once

#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace godwit {

struct Fact {
  std::string sentence, question, lead, value;
};

// "number" (a magic number for a pair of words), "hex" (a record of hex digits), "lives" (a person's city), "keeps" (a
// person's thing and its place).
std::span<const std::string_view> fact_kinds();

// How many facts of a kind there are before keys repeat.
size_t fact_capacity(std::string_view kind);

// A fact whose key is not in `used`, which it joins. REQUIRES: `kind` is one of fact_kinds(), `used` holds keys of that
// kind only and fewer than fact_capacity().
Fact make_fact(std::string_view kind, std::mt19937_64& random, std::set<std::string>& used);

}  // namespace godwit
