// Facts to plant in a text and to ask for: the sentences that state it, in the order in which they must stand in the
// text, the question, how the answer begins and what it must say.
#pragma once

#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace godwit {

struct Fact {
  std::vector<std::string> sentences;
  std::string question, lead, value;
};

// Of one sentence: "number" (a magic number for a pair of words), "hex" (a record of hex digits), "lives" (a person's
// city), "keeps" (a person's thing and its place). Of several: "multi" (2 to 4 numbers for one key), "chain" (variables
// that copy one another, from the last to the value), "sum" (a counter that goes up by small steps).
std::span<const std::string_view> fact_kinds();

// How many facts of a kind may be made before keys run out.
size_t fact_capacity(std::string_view kind);

// A fact whose keys are not in `used`, which they join. REQUIRES: `kind` is one of fact_kinds(), `used` holds keys of
// that kind only, of fewer than fact_capacity() facts.
Fact make_fact(std::string_view kind, std::mt19937_64& random, std::set<std::string>& used);

}  // namespace godwit
