#include "text/grammar/formats.h"

#include <utility>

// Days exist in every year, so the 29th of February does not.
#define GODWIT_DATE                                                                             \
  "[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[" \
  "1-9]|1\\d|2[0-8]))"
#define GODWIT_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define GODWIT_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define GODWIT_OCTET "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define GODWIT_CLOCK "(\\d{1,4}H(\\d{1,2}M(\\d{1,2}S)?)?|\\d{1,4}M(\\d{1,2}S)?|\\d{1,4}S)"

namespace godwit {

std::string_view format_pattern(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
      {"date-time", "^" GODWIT_DATE "T" GODWIT_TIME "$"},
      {"date", "^" GODWIT_DATE "$"},
      {"time", "^" GODWIT_TIME "$"},
      {"duration", "^P(\\d{1,4}W|(\\d{1,4}Y(\\d{1,2}M(\\d{1,2}D)?)?|\\d{1,4}M(\\d{1,2}D)?|\\d{1,4}D)(T" GODWIT_CLOCK
                   ")?|T" GODWIT_CLOCK ")$"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,2}@" GODWIT_LABEL "(\\." GODWIT_LABEL "){1,3}$"},
      {"hostname", "^" GODWIT_LABEL "(\\." GODWIT_LABEL "){0,4}$"},
      {"ipv4", "^(" GODWIT_OCTET "\\.){3}" GODWIT_OCTET "$"},
      {"ipv6", "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"uri",
       "^[a-z][a-z0-9+.-]{0,30}://[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)*(/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
       "(\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$"},
  };
  for (const auto& [known, pattern] : kFormats)
    if (known == name) return pattern;
  return {};
}

}  // namespace godwit
