// Typed access to the members of a request's JSON. A member that is null counts as absent; one of the wrong type or out
// of range is an error that names it the way the client wrote it, "messages[2].content".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api_error.h"

namespace godwit::server {

// The body as a JSON object, bounded in depth and values.
ApiResult<nlohmann::json> parse_body(const Request& request);

class Fields {
 public:
  static ApiResult<Fields> of(const nlohmann::json& value, std::string path = {});

  const nlohmann::json* find(std::string_view key) const;  // null where absent
  std::string name(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Each leaves `into` alone where the member is absent.
  ApiResult<void> read(std::string_view key, bool& into) const;
  ApiResult<void> read(std::string_view key, std::string& into) const;
  ApiResult<void> read(std::string_view key, int& into, int64_t least, int64_t most) const;
  ApiResult<void> read(std::string_view key, float& into, double least, double most) const;
  ApiResult<void> read(std::string_view key, std::vector<int32_t>& into) const;  // not negative
  // A string, or an array of strings.
  ApiResult<void> read(std::string_view key, std::vector<std::string>& into) const;

  ApiResult<std::string> text(std::string_view key) const;             // must be there
  ApiResult<const nlohmann::json*> array(std::string_view key) const;  // must be there and not be empty
  // Not served here: anything but absent, false, empty or `allowed` is refused.
  ApiResult<void> refuse(std::string_view key, std::string_view why, const nlohmann::json& allowed = {}) const;

 private:
  Fields(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}
  tl::unexpected<ApiError> wrong(std::string_view key, std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string path_;  // with a dot behind it, or empty
};

}  // namespace godwit::server
