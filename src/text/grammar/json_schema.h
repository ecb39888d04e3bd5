// From a JSON schema to a grammar whose texts are JSON that the schema accepts.
//
// docs/grammar.md lists what is supported. What is not is an error that names the keyword and its place as a JSON
// pointer; nothing is ignored but annotations. The grammar may accept less than the schema does, never more, save that
// oneOf is taken for anyOf.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/json_rules.h"

namespace godwit {

// Text of a schema as it comes from a stranger; bounded in size and depth. kBadData, kExhausted.
Result<nlohmann::ordered_json> parse_schema(std::string_view text, std::string_view label);

// Adds what the schema accepts, from `from` to `to`. References are looked up in the schema itself.
Status add_json_schema(JsonRules& rules, const nlohmann::ordered_json& schema, std::string_view label,
                       GrammarBuilder::Node from, GrammarBuilder::Node to);

Result<Grammar> json_schema_grammar(std::string_view schema_text, std::string_view label = "the JSON schema");
Result<Grammar> json_object_grammar();  // any object

}  // namespace godwit
