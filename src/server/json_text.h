// JSON as the server writes it: keys in the order they were given, always valid UTF-8.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace godwit::server {

using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One server-sent event; `name` only where the protocol has names.
inline std::string sse(const Json& value, std::string_view name = {}) {
  std::string text;
  if (!name.empty()) text.append("event: ").append(name).append("\n");
  return text.append("data: ").append(json_text(value)).append("\n\n");
}

}  // namespace godwit::server
