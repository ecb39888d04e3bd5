// What can go wrong, as a value. Everything that a user, a file or the world can do wrong comes back as a Result whose
// Error is one clear sentence that names the thing and the remedy; exceptions never cross this API.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace godwit {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a file, tensor, token or method is not there
  kBadData,          // a file or message is malformed
  kUnsupported,      // well-formed, but we cannot do it
  kExhausted,        // a hard limit (memory, context, queue) is reached
  kCancelled,        // the caller stopped the work
  kIo,               // the operating system refused
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace godwit
