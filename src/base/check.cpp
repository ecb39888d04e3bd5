#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace godwit {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "godwit: internal error: %s:%d: %s%s%s\n", file, line, condition, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace godwit
