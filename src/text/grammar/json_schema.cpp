#include "text/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <set>

#include "base/json.h"
#include "base/result.h"
#include "text/grammar/formats.h"
#include "text/grammar/schema_place.h"

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;
using Node = GrammarBuilder::Node;
using Rule = GrammarBuilder::Rule;
using At = SchemaPlace;

constexpr JsonLimits kLimits = {.max_bytes = size_t{256} << 10, .max_values = 20'000, .max_depth = 64};
constexpr int64_t kNoLimit = SchemaPlace::kMostCount;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string type_of(const Json& value) {
  if (value.is_number()) return value.is_number_integer() ? "integer" : "number";
  return value.type_name();
}

class Compiler {
 public:
  explicit Compiler(JsonRules& rules) : r_(rules), b_(rules.builder()) {}

  Status run(const At& root, Node from, Node to) {
    root_ = root;
    GODWIT_TRY(value(root, from, to));
    while (!referenced_.empty()) {  // not by recursion: references may form long chains
      const auto [at, rule] = referenced_.front();
      referenced_.pop_front();
      GODWIT_TRY(value(at, rule.start, rule.end));
    }
    return {};
  }

 private:
  Status value(const At& at, Node from, Node to) {
    if (at.json().is_boolean()) {
      if (at.json().get<bool>()) b_.call(from, r_.any(), to);
      return {};
    }
    if (!at.json().is_object()) return at.bad("a schema is an object, true or false");
    if (const Json* nullable = at.find("nullable")) {
      if (!nullable->is_boolean()) return at.bad("nullable must be true or false");
      if (nullable->get<bool>()) b_.text(from, "null", to);
    }
    if (at.has("$ref")) return reference(at, from, to);
    for (const char* keyword : {"anyOf", "oneOf", "allOf"})
      if (at.has(keyword)) return choices(at, keyword, from, to);
    if (at.has("enum") || at.has("const")) return constants(at, from, to);
    return typed(at, from, to);
  }

  Status reference(const At& at, Node from, Node to) {
    GODWIT_TRY(at.only({"$ref", "nullable"}, "beside $ref"));
    const Json& ref = *at.find("$ref");
    if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with("#"))
      return at.unsupported("$ref", "other than within the schema (#/…)");
    const auto& pointer = ref.get_ref<const std::string&>();
    auto it = rules_.find(pointer);
    if (it == rules_.end()) {
      const auto target = root_->follow(pointer);
      if (!target) return at.bad(fmt::format("the reference '{:.200}' leads nowhere", pointer));
      it = rules_.emplace(pointer, b_.rule()).first;
      referenced_.emplace_back(*target, it->second);
    }
    b_.call(from, it->second, to);
    return {};
  }

  Status choices(const At& at, const char* keyword, Node from, Node to) {
    GODWIT_TRY(at.only({keyword, "nullable"}, fmt::format("beside {}", keyword)));
    const Json& list = *at.find(keyword);
    if (!list.is_array() || list.empty()) return at.bad(fmt::format("{} must be a list of schemas", keyword));
    if (std::string_view(keyword) == "allOf" && list.size() > 1)
      return at.unsupported(keyword, "with more than one schema");
    for (size_t i = 0; i < list.size(); ++i) GODWIT_TRY(value(at.at(keyword).at(i), from, to));
    return {};
  }

  Status constants(const At& at, Node from, Node to) {
    GODWIT_TRY(at.only({"enum", "const", "type", "nullable"}, "beside enum or const"));
    GODWIT_ASSIGN(const std::vector<std::string> allowed, at.types());
    const Json *list = at.find("enum"), *single = at.find("const");
    if (list != nullptr && (!list->is_array() || list->empty())) return at.bad("enum must be a list of values");
    for (const Json& item : list != nullptr ? *list : Json::array({*single})) {
      const std::string type = type_of(item);
      const bool fits =
          allowed.empty() || contains(allowed, type) || (type == "integer" && contains(allowed, "number"));
      if (fits && (list == nullptr || single == nullptr || item == *single)) r_.constant(item, from, to);
    }
    return {};
  }

  // A keyword for one type says nothing about values of another; without a type, it is taken to ask for its own.
  Status typed(const At& at, Node from, Node to) {
    GODWIT_TRY(at.only({"type",        "nullable",    "properties",       "required",         "additionalProperties",
                        "items",       "prefixItems", "additionalItems",  "minItems",         "maxItems",
                        "uniqueItems", "minLength",   "maxLength",        "pattern",          "format",
                        "minimum",     "maximum",     "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}));
    GODWIT_ASSIGN(std::vector<std::string> names, at.types());
    if (names.empty()) {
      const auto infer = [&](const char* type, std::initializer_list<const char*> keywords) {
        if (std::any_of(keywords.begin(), keywords.end(), [&](const char* k) { return at.has(k); }))
          names.emplace_back(type);
      };
      infer("object", {"properties", "required", "additionalProperties"});
      infer("array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"});
      infer("string", {"minLength", "maxLength", "pattern", "format"});
      infer("number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
    }
    if (names.empty()) return b_.call(from, r_.any(), to), Status();
    for (const std::string& name : names) {
      if (name == "null") b_.text(from, "null", to);
      if (name == "boolean") b_.text(from, "true", to), b_.text(from, "false", to);
      if (name == "string") GODWIT_TRY(string(at, from, to));
      // Among several types, integers are numbers already.
      if (name == "number" || (name == "integer" && !contains(names, "number")))
        GODWIT_TRY(number(at, names, name == "integer", from, to));
      if (name != "object" && name != "array") continue;
      const Rule rule = b_.rule();
      b_.call(from, rule, to);
      GODWIT_TRY(name == "object" ? object(at, rule) : array(at, rule));
    }
    return {};
  }

  Status string(const At& at, Node from, Node to) {
    GODWIT_ASSIGN(const int64_t min, at.count("minLength", 0));
    GODWIT_ASSIGN(const int64_t max, at.count("maxLength", kNoLimit));
    if (min > max) return at.bad("minLength is above maxLength");
    if (!at.has("pattern") && !at.has("format")) {
      b_.call(from, r_.string(min, max == kNoLimit ? std::nullopt : std::optional(max)), to);
      return {};
    }
    if (at.has("pattern") && at.has("format")) return at.unsupported("format", "beside pattern");
    for (const char* keyword : {"minLength", "maxLength"})
      if (at.has(keyword)) return at.unsupported(keyword, "beside pattern or format");
    const char* keyword = at.has("pattern") ? "pattern" : "format";
    const Json& text = *at.find(keyword);
    if (!text.is_string()) return at.bad(fmt::format("{} must be a string", keyword));
    std::string expression = text.get<std::string>();
    if (at.has("format")) {
      const std::string_view known = format_pattern(expression);
      if (known.empty()) return at.unsupported("format", fmt::format("with the value '{:.60}'", expression));
      expression = known;
    }
    const auto rule = r_.pattern(expression);
    if (!rule) return at.unsupported("pattern", fmt::format("as it is: {}", rule.error().message));
    b_.call(from, *rule, to);
    return {};
  }

  Status number(const At& at, const std::vector<std::string>& names, bool integer, Node from, Node to) {
    NumberBounds bounds;
    bounds.integer = integer;
    GODWIT_ASSIGN(bounds.least, at.decimal("minimum"));
    GODWIT_ASSIGN(bounds.most, at.decimal("maximum"));
    GODWIT_ASSIGN(const auto above, at.decimal("exclusiveMinimum"));
    GODWIT_ASSIGN(const auto below, at.decimal("exclusiveMaximum"));
    if ((bounds.least && above) || (bounds.most && below))
      return at.unsupported(above ? "exclusiveMinimum" : "exclusiveMaximum", "beside minimum or maximum");
    if (above) bounds.least = above, bounds.above_least = true;
    if (below) bounds.most = below, bounds.below_most = true;
    GODWIT_ASSIGN(bounds.multiple_of, at.decimal("multipleOf"));
    if (const Json* format = at.find("format");
        format != nullptr && !contains(names, "string")) {  // as OpenAPI has them
      if (*format == Json("int32")) {
        if (!bounds.least) bounds.least = Decimal::of(int64_t{INT32_MIN});
        if (!bounds.most) bounds.most = Decimal::of(int64_t{INT32_MAX});
      } else if (*format != Json("int64") && *format != Json("float") && *format != Json("double")) {
        return at.unsupported("format", fmt::format("with the value {:.60}", format->dump()));
      }
    }
    const auto rule = r_.number(bounds);
    if (!rule) return at.unsupported("multipleOf", fmt::format("as it is: {}", rule.error().message));
    b_.call(from, *rule, to);
    return {};
  }

  // A schema inside this one, as a rule.
  Result<Rule> inner(const At& at) {
    const Rule rule = b_.rule();
    GODWIT_TRY(value(at, rule.start, rule.end));
    return rule;
  }

  Result<std::set<std::string>> required(const At& at) const {
    std::set<std::string> names;
    const Json* list = at.find("required");
    if (list == nullptr) return names;
    const auto is_string = [](const Json& name) { return name.is_string(); };
    if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_string))
      return at.bad("required must be a list of names");
    for (const Json& name : *list) names.insert(name.get<std::string>());
    return names;
  }

  // Properties come in the order of the schema, then those that are required only, then others.
  Status object(const At& at, Rule rule) {
    struct Property {
      std::string name;
      std::optional<At> schema;
      bool required;
    };
    std::vector<Property> properties;
    std::vector<std::string> names;
    GODWIT_ASSIGN(std::set<std::string> required_names, required(at));
    if (const Json* all = at.find("properties")) {
      if (!all->is_object()) return at.bad("properties must be an object");
      for (const auto& item : all->items()) {
        properties.push_back({item.key(), at.at("properties").at(item.key()), required_names.erase(item.key()) > 0});
        names.push_back(item.key());
      }
    }
    std::optional<At> others;
    if (at.has("additionalProperties")) others = at.at("additionalProperties");
    const bool closed = others ? others->json() == Json(false) : !properties.empty();
    for (const std::string& name : required_names) {
      properties.push_back({name, others, true});
      names.push_back(name);
    }
    Node none = r_.space(b_.text(rule.start, "{"));  // no property so far
    Node some = b_.node();                           // or at least one
    for (const Property& property : properties) {
      const Node key = b_.node(), next_none = b_.node(), next_some = b_.node();
      b_.skip(none, key);
      b_.skip(r_.space(b_.text(some, ",")), key);
      if (!property.required) b_.skip(none, next_none), b_.skip(some, next_some);
      const Node begin = r_.colon(b_.text(key, Json(property.name).dump()));
      if (property.schema)
        GODWIT_TRY(value(*property.schema, begin, next_some));
      else
        b_.call(begin, r_.any(), next_some);
      none = next_none;
      some = next_some;
    }
    if (!closed) {
      Rule other = r_.any();
      if (others) {
        GODWIT_ASSIGN(other, inner(*others));
      }
      const Node key = b_.node(), named = b_.node();
      b_.skip(none, key);
      b_.skip(r_.space(b_.text(some, ",")), key);
      b_.call(key, names.empty() ? r_.string() : r_.other_key(names), named);
      b_.call(r_.colon(named), other, some);
    }
    b_.text(none, "}", rule.end);
    b_.text(r_.space(some), "}", rule.end);
    return {};
  }

  Status array(const At& at, Rule rule) {
    if (const Json* unique = at.find("uniqueItems"); unique != nullptr && *unique != Json(false))
      return at.unsupported("uniqueItems");
    GODWIT_ASSIGN(const int64_t min, at.count("minItems", 0));
    GODWIT_ASSIGN(int64_t max, at.count("maxItems", kNoLimit));
    const bool old_tuple = at.has("items") && at.find("items")->is_array();  // as drafts before 2020 have it
    const char *first_keyword = old_tuple ? "items" : "prefixItems",
               *rest_keyword = old_tuple ? "additionalItems" : "items";
    std::vector<Rule> first;
    if (const Json* list = at.find(first_keyword)) {
      if (!list->is_array()) return at.bad(fmt::format("{} must be a list of schemas", first_keyword));
      for (size_t i = 0; i < list->size(); ++i) {
        GODWIT_ASSIGN(const Rule item, inner(at.at(first_keyword).at(i)));
        first.push_back(item);
      }
    }
    const auto prefix = static_cast<int64_t>(first.size());
    Rule rest = r_.any();
    if (at.has(rest_keyword)) {
      GODWIT_ASSIGN(rest, inner(at.at(rest_keyword)));
    } else if (prefix > 0) {
      max = std::min(max, std::max(prefix, min));
    }
    if (min > max) return at.bad("minItems is above maxItems");

    const Node open = r_.space(b_.text(rule.start, "[")), close = b_.node();
    b_.text(close, "]", rule.end);
    if (min == 0) b_.skip(open, close);
    Node begin = b_.node();  // of an item
    b_.skip(open, begin);
    const bool endless = max == kNoLimit;
    const int64_t counted = endless ? std::max(min, prefix) : max;  // items whose number matters
    for (int64_t i = 0; i < counted && !b_.full(); ++i) {
      const Node after = b_.node();
      b_.call(begin, i < prefix ? first[static_cast<size_t>(i)] : rest, after);
      if (i + 1 >= min) b_.skip(r_.space(after), close);
      begin = r_.space(b_.text(after, ","));
    }
    if (!endless) return {};
    const Node after = b_.node();
    b_.call(begin, rest, after);
    b_.skip(r_.space(b_.text(after, ",")), begin);
    b_.skip(r_.space(after), close);
    return {};
  }

  JsonRules& r_;
  GrammarBuilder& b_;
  std::optional<At> root_;
  std::map<std::string, Rule> rules_;  // by pointer
  std::deque<std::pair<At, Rule>> referenced_;
};

}  // namespace

Result<Json> parse_schema(std::string_view text, std::string_view label) {
  return parse_ordered_json(text, label, kLimits);
}

Status add_json_schema(JsonRules& rules, const Json& schema, std::string_view label, Node from, Node to) {
  return Compiler(rules).run(SchemaPlace(schema, label), from, to);
}

Result<Grammar> json_schema_grammar(std::string_view schema_text, std::string_view label) {
  GODWIT_ASSIGN(const Json schema, parse_schema(schema_text, label));
  GrammarBuilder builder;
  JsonRules rules(builder);
  const Rule root = builder.rule();
  const Node begin = builder.node();
  builder.skip(root.start, begin);
  builder.byte(root.start, ' ', ' ', begin);  // SentencePiece begins texts with a space, which decoding drops
  GODWIT_TRY(add_json_schema(rules, schema, label, begin, root.end));
  return builder.finish(root, label);
}

Result<Grammar> json_object_grammar() {
  return json_schema_grammar(R"({"type":"object"})");
}

}  // namespace godwit
