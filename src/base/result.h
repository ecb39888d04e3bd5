// Short forms for code that returns godwit::Result: format an error in place, and pass a failure up.
#pragma once

#include <fmt/format.h>

#include <godwit/status.h>

namespace godwit {

template <class... Args>
tl::unexpected<Error> errorf(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return fail(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace godwit

#define GODWIT_CONCAT_INNER(a, b) a##b
#define GODWIT_CONCAT(a, b) GODWIT_CONCAT_INNER(a, b)

// GODWIT_TRY(expr): returns the error of a Result (or Status) expression from the enclosing function.
#define GODWIT_TRY(...)                                                                                     \
  do {                                                                                                      \
    if (auto try_result = (__VA_ARGS__); !try_result) return tl::unexpected(std::move(try_result).error()); \
  } while (0)

// GODWIT_ASSIGN(decl, expr): declares `decl` from the value, or returns the error.
#define GODWIT_ASSIGN(decl, ...) GODWIT_ASSIGN_IMPL(GODWIT_CONCAT(assign_result_, __LINE__), decl, __VA_ARGS__)
#define GODWIT_ASSIGN_IMPL(tmp, decl, ...)                 \
  auto tmp = (__VA_ARGS__);                                \
  if (!tmp) return tl::unexpected(std::move(tmp).error()); \
  decl = std::move(*tmp)
