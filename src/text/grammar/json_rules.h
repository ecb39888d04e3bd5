// The parts of JSON as grammar rules, each built once per grammar: strings, numbers, any value, constants, white space.
//
// White space is bounded: one space may stand behind a colon; behind '{', '[' and ',' and before '}' and ']' one space,
// or a line break with up to 32 spaces or 8 tabs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "text/grammar/builder.h"
#include "text/grammar/number.h"

namespace godwit {

class JsonRules {
 public:
  using Node = GrammarBuilder::Node;
  using Rule = GrammarBuilder::Rule;
  using Json = nlohmann::ordered_json;

  explicit JsonRules(GrammarBuilder& builder) : b_(builder) {}
  JsonRules(const JsonRules&) = delete;
  JsonRules& operator=(const JsonRules&) = delete;

  GrammarBuilder& builder() { return b_; }

  Rule any();  // a value

  Rule string() { return string(0, std::nullopt); }
  Rule string(int64_t min_length, std::optional<int64_t> max_length);  // in characters, quotes not counted
  Result<Rule> pattern(const std::string& pattern);
  Result<Rule> number(const NumberBounds& bounds);
  // A string without escapes that is none of these.
  Rule other_key(const std::vector<std::string>& keys);

  void constant(const Json& value, Node from, Node to);
  Node space(Node from);  // behind '{', '[', ',' or before '}', ']'
  Node colon(Node from);

 private:
  Rule memo(const std::string& name, const std::function<void(Rule)>& build);
  void character(Node from, Node to);  // of a string, escapes included
  void unicode_escape(Node from, Node to);
  Node exactly(Node from, int64_t count);
  void at_most(Node from, int64_t count, Node closed);  // behind the quote

  GrammarBuilder& b_;
  std::map<std::string, Rule> rules_;
};

}  // namespace godwit
