#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace godwit::server {
namespace {

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiStyle style_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ApiStyle::kAnthropic : ApiStyle::kOpenAi;
}

std::string error_body(const ApiError& error, ApiStyle style, std::string_view request_id) {
  if (style == ApiStyle::kAnthropic)
    return json_text({{"type", "error"},
                      {"error", {{"type", anthropic_type(error.status)}, {"message", error.message}}},
                      {"request_id", request_id}});
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return json_text({{"error",
                     {{"message", error.message},
                      {"type", openai_type(error.status)},
                      {"param", or_null(error.param)},
                      {"code", or_null(error.code)}}}});
}

Response to_response(const ApiError& error, ApiStyle style, std::string_view request_id) {
  Response response{.status = error.status, .body = error_body(error, style, request_id)};
  if (error.retry_after_seconds > 0)
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError to_api_error(const Error& error) {
  ApiError result{.message = error.message};
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kBadData:
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
      break;
    case ErrorCode::kExhausted:
      result.status = 429, result.code = "queue_full";
      break;
    case ErrorCode::kCancelled:
      result.status = 503, result.code = "shutting_down";
      break;
    case ErrorCode::kIo:
      result.status = 500;
      break;
  }
  return result;
}

}  // namespace godwit::server
