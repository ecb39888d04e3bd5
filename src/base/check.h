// Checks for our own bugs (never for bad input, which is a Result). GODWIT_CHECK is always on; GODWIT_DCHECK guards hot
// loops and vanishes with NDEBUG.
#pragma once

#include <fmt/format.h>

namespace godwit {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail = {});

}  // namespace godwit

#define GODWIT_CHECK(condition, ...)                                                                 \
  do {                                                                                               \
    if (!(condition)) [[unlikely]]                                                                   \
      ::godwit::check_failed(__FILE__, __LINE__, #condition __VA_OPT__(, fmt::format(__VA_ARGS__))); \
  } while (0)

#ifdef NDEBUG
#define GODWIT_DCHECK(condition, ...) \
  do {                                \
  } while (0)
#else
#define GODWIT_DCHECK(...) GODWIT_CHECK(__VA_ARGS__)
#endif
