#include "kv/method.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace godwit {
namespace {

template <class Names>
std::string join(const Names& names) {
  std::string text;
  for (std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

// The whole of `text` as a number.
template <class Number>
bool read_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

}  // namespace

Result<MethodSpec> parse_method_spec(std::string_view text) {
  MethodSpec spec;
  size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  if (colon == std::string_view::npos) return spec;

  std::string_view rest = text.substr(colon + 1);
  while (true) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return errorf(ErrorCode::kInvalidArgument, "'{}' in '{}' is not key=value", item, text);
    std::string key(item.substr(0, equals));
    for (const auto& given : spec.params)
      if (given.first == key) return errorf(ErrorCode::kInvalidArgument, "'{}' gives '{}' twice", text, key);
    spec.params.emplace_back(std::move(key), std::string(item.substr(equals + 1)));
    if (comma == std::string_view::npos) return spec;
    rest.remove_prefix(comma + 1);
  }
}

Result<MethodArgs> MethodArgs::bind(std::string_view kind, const MethodInfo& info, const MethodSpec& spec) {
  MethodArgs args;
  args.method_ = fmt::format("{} '{}'", kind, info.name);
  std::vector<std::string_view> known;
  for (const MethodParam& param : info.params) {
    args.values_.emplace_back(param.name, param.default_value);
    known.push_back(param.name);
  }
  for (const auto& [key, value] : spec.params) {
    auto found = std::find(known.begin(), known.end(), key);
    if (found == known.end() && known.empty())
      return errorf(ErrorCode::kInvalidArgument, "{} takes no parameters, so not '{}'", args.method_, key);
    if (found == known.end())
      return errorf(ErrorCode::kInvalidArgument, "{} has no parameter '{}'; it has {}", args.method_, key, join(known));
    args.values_[static_cast<size_t>(found - known.begin())].second = value;
  }
  return args;
}

const std::string& MethodArgs::text(std::string_view key) const {
  auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == key; });
  GODWIT_CHECK(found != values_.end(), "{} declares no parameter '{}'", method_, key);
  return found->second;
}

Result<int64_t> MethodArgs::integer(std::string_view key, int64_t min, int64_t max) const {
  int64_t value = 0;
  if (!read_number(text(key), value) || value < min || value > max)
    return errorf(ErrorCode::kInvalidArgument, "{} of {} is '{}'; give a whole number from {} to {}", key, method_,
                  text(key), min, max);
  return value;
}

Result<int64_t> MethodArgs::odd_integer(std::string_view key, int64_t min, int64_t max) const {
  GODWIT_ASSIGN(const int64_t value, integer(key, min, max));
  if (value % 2 == 0)
    return errorf(ErrorCode::kInvalidArgument, "{} of {} is {}; give an odd number", key, method_, value);
  return value;
}

Result<double> MethodArgs::real(std::string_view key, double min, double max) const {
  double value = 0;
  if (!read_number(text(key), value) || !std::isfinite(value) || value < min || value > max)
    return errorf(ErrorCode::kInvalidArgument, "{} of {} is '{}'; give a number from {} to {}", key, method_, text(key),
                  min, max);
  return value;
}

Result<bool> MethodArgs::flag(std::string_view key) const {
  const std::string& value = text(key);
  if (value == "true" || value == "on" || value == "1") return true;
  if (value == "false" || value == "off" || value == "0") return false;
  return errorf(ErrorCode::kInvalidArgument, "{} of {} is '{}'; give on or off", key, method_, value);
}

Error unknown_method(std::string_view kind, std::string_view name, std::span<const std::string_view> known) {
  return {ErrorCode::kInvalidArgument,
          known.empty() ? fmt::format("no {} is named '{}'; there are none in this build", kind, name)
                        : fmt::format("no {} is named '{}'; there are {}", kind, name, join(known))};
}

}  // namespace godwit
