// What a client did wrong, or met, in the form its protocol has for it.
#pragma once

#include <string>

#include "server/http.h"
#include <godwit/status.h>

namespace godwit::server {

struct ApiError {
  int status = 400;
  std::string message = {};
  std::string param = {};  // the field, where one is to blame
  std::string code = {};   // a word for programs
  int retry_after_seconds = 0;
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

inline tl::unexpected<ApiError> bad_field(std::string param, std::string message) {
  return tl::unexpected(ApiError{.status = 400, .message = std::move(message), .param = std::move(param)});
}

enum class ApiStyle { kOpenAi, kAnthropic };
ApiStyle style_of(std::string_view path);

std::string error_body(const ApiError& error, ApiStyle style, std::string_view request_id);
Response to_response(const ApiError& error, ApiStyle style, std::string_view request_id);

// What the engine refused.
ApiError to_api_error(const Error& error);

}  // namespace godwit::server
