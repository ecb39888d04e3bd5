#include "server/fields.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/result.h"

namespace godwit::server {

using nlohmann::json;

ApiResult<json> parse_body(const Request& request) {
  const std::string_view type = request.header("content-type");
  // A page of somebody else's in the user's browser can post plain text or forms to us, but not this.
  if (!type.starts_with("application/json"))
    return tl::unexpected(ApiError{
        .status = 415, .message = fmt::format("the body must be JSON: send 'Content-Type: application/json'")});
  auto body = parse_json(request.body, "the request body",
                         {.max_bytes = request.body.size(), .max_values = size_t{2} << 20, .max_depth = 64});
  if (!body) return tl::unexpected(ApiError{.message = std::move(body).error().message, .code = "invalid_json"});
  return std::move(*body);
}

ApiResult<Fields> Fields::of(const json& value, std::string path) {
  if (!value.is_object())
    return bad_field(path, fmt::format("{} must be a JSON object, not {}",
                                       path.empty() ? "the request body" : "'" + path + "'", value.type_name()));
  if (!path.empty()) path += ".";
  return Fields(value, std::move(path));
}

const json* Fields::find(std::string_view key) const {
  const auto& members = value_->get_ref<const json::object_t&>();
  auto it = members.find(key);
  return it == members.end() || it->second.is_null() ? nullptr : &it->second;
}

std::string Fields::name(std::string_view key) const {
  return path_ + std::string(key);
}

tl::unexpected<ApiError> Fields::wrong(std::string_view key, std::string_view wanted) const {
  const json* value = find(key);
  if (value == nullptr) return bad_field(name(key), fmt::format("'{}' is missing; it must be {}", name(key), wanted));
  const std::string is = value->is_number()   ? value->dump()
                         : !value->is_array() ? value->type_name()
                         : value->empty()     ? "an empty array"
                                              : "this array";
  return bad_field(name(key), fmt::format("'{}' must be {}, not {}", name(key), wanted, is));
}

ApiResult<void> Fields::read(std::string_view key, bool& into) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) return wrong(key, "true or false");
  into = value->get<bool>();
  return {};
}

ApiResult<void> Fields::read(std::string_view key, std::string& into) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_string()) return wrong(key, "a string");
  into = value->get_ref<const std::string&>();
  return {};
}

ApiResult<void> Fields::read(std::string_view key, int& into, int64_t least, int64_t most) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most)
    return wrong(key, fmt::format("an integer from {} to {}", least, most));
  into = static_cast<int>(value->get<int64_t>());
  return {};
}

ApiResult<void> Fields::read(std::string_view key, float& into, double least, double most) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_number() || value->get<double>() < least || value->get<double>() > most)
    return wrong(key, fmt::format("a number from {} to {}", least, most));
  into = static_cast<float>(value->get<double>());
  return {};
}

ApiResult<void> Fields::read(std::string_view key, std::vector<int32_t>& into) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) return wrong(key, "an array of token ids");
  into.clear();
  into.reserve(value->size());
  for (const json& item : *value) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT32_MAX) return wrong(key, "an array of token ids");
    into.push_back(item.get<int32_t>());
  }
  return {};
}

ApiResult<void> Fields::read(std::string_view key, std::vector<std::string>& into) const {
  const json* value = find(key);
  if (value == nullptr) return {};
  into.clear();
  if (value->is_string()) {
    into.push_back(value->get<std::string>());
    return {};
  }
  if (!value->is_array()) return wrong(key, "a string or an array of strings");
  for (const json& item : *value) {
    if (!item.is_string()) return wrong(key, "a string or an array of strings");
    into.push_back(item.get<std::string>());
  }
  return {};
}

ApiResult<std::string> Fields::text(std::string_view key) const {
  std::string result;
  if (!has(key)) return wrong(key, "a string");
  GODWIT_TRY(read(key, result));
  return result;
}

ApiResult<const json*> Fields::array(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_array() || value->empty()) return wrong(key, "an array that is not empty");
  return value;
}

ApiResult<void> Fields::refuse(std::string_view key, std::string_view why, const json& allowed) const {
  const json* value = find(key);
  if (value == nullptr || *value == allowed || *value == false || value->empty()) return {};
  return bad_field(name(key), fmt::format("'{}': {}", name(key), why));
}

}  // namespace godwit::server
