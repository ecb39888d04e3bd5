#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

// Objects that keep the order of their keys find a key in linear time, so there may not be many.
constexpr JsonLimits kOrdered{.max_values = 10000, .max_depth = 64};

ApiResult<void> hold(const std::string& name, Result<std::shared_ptr<const Constraint>> constraint,
                     GenerateOptions& options) {
  if (!constraint) return bad_field(name, fmt::format("'{}': {}", name, constraint.error().message));
  options.constraint = std::move(*constraint);
  return {};
}

}  // namespace

ApiResult<Json> ordered_member(const Request& request, std::string_view pointer) {
  auto body = parse_ordered_json(request.body, "the request body", kOrdered);
  if (!body) return tl::unexpected(ApiError{.message = std::move(body).error().message});
  return body->at(Json::json_pointer(std::string(pointer)));
}

ApiResult<void> read_format(const App& app, const Request& request, const Fields& outer, std::string_view key,
                            GenerateOptions& options) {
  const nlohmann::json* value = outer.find(key);
  if (value == nullptr) return {};
  GODWIT_ASSIGN(const Fields format, Fields::of(*value, outer.name(key)));
  GODWIT_ASSIGN(const std::string type, format.text("type"));
  if (type == "text") return {};
  if (type == "json_object") return hold(format.name("type"), app.engine.json_object(), options);
  if (type != "json_schema")
    return bad_field(format.name("type"), fmt::format("'{}' must be text, json_object or json_schema, not '{}'",
                                                      format.name("type"), type.substr(0, 32)));
  // Chat completions have one more level than the others.
  const nlohmann::json* inner = format.find("json_schema");
  GODWIT_ASSIGN(const Fields place, inner != nullptr ? Fields::of(*inner, format.name("json_schema")) : format);
  const std::string name = place.name("schema");
  if (!place.has("schema")) return bad_field(name, fmt::format("'{}' is missing; it must be a JSON schema", name));
  std::string pointer = "/" + name;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  // As the client wrote it: properties come in the schema's order.
  GODWIT_ASSIGN(const Json schema, ordered_member(request, pointer));
  return hold(name, app.engine.json_schema(json_text(schema)), options);
}

}  // namespace godwit::server
