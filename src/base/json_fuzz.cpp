// Any text: what parse_json takes is what the library takes, and an error is short and printable.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace godwit;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto value = parse_json(text, "input");
  if (value) {
    GODWIT_CHECK(*value == nlohmann::json::parse(text, nullptr, false));
    return 0;
  }
  GODWIT_CHECK(!value.error().message.empty() && value.error().message.size() < 300);
  bool malformed = value.error().code == ErrorCode::kBadData && text.find('\0') == std::string_view::npos;
  GODWIT_CHECK(!malformed || !nlohmann::json::accept(text));
  return 0;
}
