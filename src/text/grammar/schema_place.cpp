#include "text/grammar/schema_place.h"

#include <algorithm>

#include "base/result.h"

namespace godwit {
namespace {

// What says nothing about which values are valid.
constexpr std::string_view kAnnotations[] = {"title",    "description", "default",    "examples",     "example",
                                             "$schema",  "$id",         "$comment",   "$defs",        "definitions",
                                             "readOnly", "writeOnly",   "deprecated", "discriminator"};
constexpr std::string_view kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::string escaped(std::string_view key) {  // as a step of a JSON pointer
  std::string out;
  for (const char c : key) {
    if (c == '~' || c == '/')
      out.append(c == '~' ? "~0" : "~1");
    else
      out.push_back(c);
  }
  return out;
}

std::string unescaped(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    const bool tilde = step[i] == '~' && i + 1 < step.size();
    out += tilde ? (step[++i] == '1' ? '/' : '~') : step[i];
  }
  return out;
}

}  // namespace

const SchemaPlace::Json* SchemaPlace::find(std::string_view keyword) const {
  const auto it = json_->find(std::string(keyword));
  return it == json_->end() ? nullptr : &*it;
}

SchemaPlace SchemaPlace::at(std::string_view key) const {
  SchemaPlace inner = *this;
  inner.json_ = find(key);
  inner.pointer_ += '/';
  inner.pointer_ += escaped(key);
  return inner;
}

SchemaPlace SchemaPlace::at(size_t index) const {
  SchemaPlace inner = *this;
  inner.json_ = &(*json_)[index];
  inner.pointer_ += fmt::format("/{}", index);
  return inner;
}

Result<SchemaPlace> SchemaPlace::follow(std::string_view pointer) const {
  SchemaPlace place = *this;
  for (size_t pos = 1; pos < pointer.size();) {
    const size_t end = std::min(pointer.find('/', pos + 1), pointer.size());
    const std::string step = unescaped(pointer.substr(pos + 1, end - pos - 1));
    const bool index = place.json_->is_array() && !step.empty() && step.size() < 6 &&
                       step.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoul(step) < place.json_->size();
    if (pointer[pos] != '/' || !(index || (place.json_->is_object() && place.has(step))))
      return bad(fmt::format("'{:.200}' leads nowhere", pointer));
    place = index ? place.at(std::stoul(step)) : place.at(step);
    pos = end;
  }
  return place;
}

tl::unexpected<Error> SchemaPlace::bad(std::string_view what) const {
  return errorf(ErrorCode::kInvalidArgument, "{} at '{:.200}': {}", label_, pointer_, what);
}

tl::unexpected<Error> SchemaPlace::unsupported(std::string_view keyword, std::string_view why) const {
  return errorf(ErrorCode::kUnsupported, "{} at '{:.200}': the keyword '{:.60}' is not supported{}{}", label_, pointer_,
                keyword, why.empty() ? "" : " ", why);
}

Status SchemaPlace::only(std::initializer_list<std::string_view> known, std::string_view why) const {
  for (const auto& item : json_->items())
    if (!contains(kAnnotations, item.key()) && !contains(known, item.key())) return unsupported(item.key(), why);
  return {};
}

Result<std::vector<std::string>> SchemaPlace::types() const {
  std::vector<std::string> names;
  const Json* type = find("type");
  if (type == nullptr) return names;
  for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
    if (!one.is_string() || !contains(kTypes, one.get_ref<const std::string&>()))
      return bad(fmt::format("the type {:.60} is unknown", one.dump()));
    if (!contains(names, one.get_ref<const std::string&>())) names.push_back(one.get<std::string>());
  }
  if (names.empty()) return bad("the list of types is empty");
  return names;
}

Result<int64_t> SchemaPlace::count(std::string_view keyword, int64_t fallback) const {
  const Json* json = find(keyword);
  if (json == nullptr) return fallback;
  const double value = json->is_number() ? json->get<double>() : -1;
  if (value < 0 || value != static_cast<double>(static_cast<int64_t>(std::min(value, 1e15))))
    return bad(fmt::format("{} must be a whole number from 0 on", keyword));
  return static_cast<int64_t>(std::min(value, static_cast<double>(kMostCount)));
}

Result<std::optional<Decimal>> SchemaPlace::decimal(std::string_view keyword) const {
  const Json* json = find(keyword);
  if (json == nullptr) return std::optional<Decimal>();
  if (!json->is_number()) return bad(fmt::format("{} must be a number", keyword));
  const bool small = json->is_number_integer() && (!json->is_number_unsigned() || json->get<uint64_t>() < INT64_MAX);
  return std::optional(small ? Decimal::of(json->get<int64_t>()) : Decimal::of(json->get<double>()));
}

}  // namespace godwit
