#include "base/json.h"

#include <algorithm>
#include <limits>
#include <new>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/result.h"

namespace godwit {
namespace {

using nlohmann::json;

// The text around a syntax error, short and printable.
std::string excerpt(std::string_view text, size_t at) {
  std::string out;
  for (size_t i = at; i < text.size() && out.size() < 24; ++i) {
    char c = text[i];
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

// Receives the parser's events and builds the value, so that the limits hold while it grows and not only afterwards.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, std::string_view label, const JsonLimits& limits)
      : text_(text), label_(label), limits_(limits) {}

  json take() { return std::move(root_); }
  tl::unexpected<Error> error() { return tl::unexpected<Error>(std::move(error_)); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    auto [slot, added] = stack_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!added && limits_.unique_keys) {
      error_ = {ErrorCode::kBadData, fmt::format("{}: the key '{}' appears twice", label_, excerpt(slot->first, 0))};
      return false;
    }
    slot_ = &slot->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& cause) override {
    // 406 is a number too large for a double; every other failure is syntax or encoding.
    bool range = cause.id == 406;
    size_t at = std::min(position > 0 ? position - 1 : 0, text_.size());
    auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    size_t start = at == 0 ? std::string_view::npos : text_.rfind('\n', at - 1);
    size_t column = at - (start == std::string_view::npos ? 0 : start + 1) + 1;
    std::string near = at < text_.size() ? fmt::format("near '{}'", excerpt(text_, at)) : "where the text ends";
    error_ = {ErrorCode::kBadData, fmt::format("{}: {} at line {}, column {}, {}", label_,
                                               range ? "a number out of range" : "not valid JSON", line, column, near)};
    return false;
  }

 private:
  template <class V>
  json* put(V&& value) {
    if (stack_.empty()) return &(root_ = std::forward<V>(value));
    json& parent = *stack_.back();
    if (parent.is_object()) return &(*slot_ = std::forward<V>(value));
    auto& array = parent.get_ref<json::array_t&>();
    array.emplace_back(std::forward<V>(value));
    return &array.back();
  }
  template <class V>
  bool add(V&& value) {
    put(std::forward<V>(value));
    return count();
  }
  bool count() {
    if (++values_ <= limits_.max_values) return true;
    error_ = {ErrorCode::kExhausted,
              fmt::format("{}: JSON holds more than the limit of {} values", label_, limits_.max_values)};
    return false;
  }
  bool open(json container) {
    if (stack_.size() >= static_cast<size_t>(std::max(limits_.max_depth, 0))) {
      error_ = {ErrorCode::kExhausted,
                fmt::format("{}: JSON is nested deeper than the limit of {} levels", label_, limits_.max_depth)};
      return false;
    }
    // The parent's storage does not move while a child is open, so the pointers on the stack stay valid.
    stack_.push_back(put(std::move(container)));
    return count();
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_, label_;
  const JsonLimits& limits_;
  json root_;
  std::vector<json*> stack_;
  size_t values_ = 0;
  json* slot_ = nullptr;  // where the value of the last key goes
  Error error_;
};

template <class T>
constexpr std::string_view kTypeName = "";
template <>
constexpr std::string_view kTypeName<bool> = "true or false";
template <>
constexpr std::string_view kTypeName<int64_t> = "an integer";
template <>
constexpr std::string_view kTypeName<double> = "a number";
template <>
constexpr std::string_view kTypeName<std::string> = "a string";
template <>
constexpr std::string_view kTypeName<std::vector<int64_t>> = "an array of integers";
template <>
constexpr std::string_view kTypeName<std::vector<double>> = "an array of numbers";
template <>
constexpr std::string_view kTypeName<std::vector<std::string>> = "an array of strings";

bool convert(const json& from, bool& to) {
  if (!from.is_boolean()) return false;
  to = from.get<bool>();
  return true;
}
bool convert(const json& from, int64_t& to) {
  if (!from.is_number_integer()) return false;
  if (from.is_number_unsigned() && from.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return false;
  to = from.get<int64_t>();
  return true;
}
bool convert(const json& from, double& to) {
  if (!from.is_number()) return false;
  to = from.get<double>();
  return true;
}
bool convert(const json& from, std::string& to) {
  if (!from.is_string()) return false;
  to = from.get_ref<const std::string&>();
  return true;
}
template <class T>
bool convert(const json& from, std::vector<T>& to) {
  if (!from.is_array()) return false;
  to.reserve(from.size());
  for (const json& item : from)
    if (!convert(item, to.emplace_back())) return false;
  return true;
}

}  // namespace

Result<json> parse_json(std::string_view text, std::string_view label, JsonLimits limits) {
  if (text.size() > limits.max_bytes)
    return errorf(ErrorCode::kExhausted, "{}: JSON of {} bytes is over the limit of {} bytes", label, text.size(),
                  limits.max_bytes);
  // The parser takes a NUL for the end of the input and would ignore what follows.
  if (size_t at = text.find('\0'); at != std::string_view::npos)
    return errorf(ErrorCode::kBadData, "{}: not valid JSON: a NUL byte at offset {}", label, at);
  Builder builder(text, label, limits);
  try {
    if (!json::sax_parse(text.begin(), text.end(), &builder)) return builder.error();
    return builder.take();
  } catch (const std::bad_alloc&) {
    return errorf(ErrorCode::kExhausted, "{}: not enough memory for JSON of {} bytes", label, text.size());
  } catch (const std::exception&) {
    return errorf(ErrorCode::kBadData, "{}: not valid JSON", label);
  }
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view label, JsonLimits limits) {
  GODWIT_TRY(parse_json(text, label, limits));  // which holds the limits
  auto value = nlohmann::ordered_json::parse(text, nullptr, false);
  GODWIT_CHECK(!value.is_discarded());
  return value;
}

Result<JsonObject> JsonObject::of(const json& value, std::string label) {
  if (!value.is_object())
    return errorf(ErrorCode::kBadData, "{}: expected a JSON object, found {}", label, value.type_name());
  return JsonObject(value, std::move(label), "");
}

const json* JsonObject::member(std::string_view key) const {
  const auto& members = value_->get_ref<const json::object_t&>();
  auto it = members.find(key);
  return it == members.end() || it->second.is_null() ? nullptr : &it->second;
}

tl::unexpected<Error> JsonObject::missing(std::string_view key) const {
  return errorf(ErrorCode::kNotFound, "{}: the key '{}{}' is missing", label_, path_, key);
}

tl::unexpected<Error> JsonObject::wrong_type(std::string_view key, std::string_view wanted) const {
  return errorf(ErrorCode::kBadData, "{}: the key '{}{}' should be {}, but is {}", label_, path_, key, wanted,
                member(key)->type_name());
}

template <class T>
Result<std::optional<T>> JsonObject::find(std::string_view key) const {
  const json* value = member(key);
  if (value == nullptr) return std::optional<T>();
  T out{};
  if (!convert(*value, out)) return wrong_type(key, kTypeName<T>);
  return std::optional<T>(std::move(out));
}

template <class T>
Result<T> JsonObject::get(std::string_view key) const {
  GODWIT_ASSIGN(std::optional<T> value, find<T>(key));
  if (!value) return missing(key);
  return std::move(*value);
}

template <class T>
Result<T> JsonObject::get_or(std::string_view key, T fallback) const {
  GODWIT_ASSIGN(std::optional<T> value, find<T>(key));
  return value ? std::move(*value) : std::move(fallback);
}

Result<std::optional<JsonObject>> JsonObject::find_object(std::string_view key) const {
  const json* value = member(key);
  if (value == nullptr) return std::optional<JsonObject>();
  if (!value->is_object()) return wrong_type(key, "an object");
  return std::optional<JsonObject>(JsonObject(*value, label_, fmt::format("{}{}.", path_, key)));
}

Result<JsonObject> JsonObject::object(std::string_view key) const {
  GODWIT_ASSIGN(std::optional<JsonObject> value, find_object(key));
  if (!value) return missing(key);
  return std::move(*value);
}

#define GODWIT_JSON_TYPE(...)                                                           \
  template Result<__VA_ARGS__> JsonObject::get(std::string_view) const;                 \
  template Result<std::optional<__VA_ARGS__>> JsonObject::find(std::string_view) const; \
  template Result<__VA_ARGS__> JsonObject::get_or(std::string_view, __VA_ARGS__) const;
GODWIT_JSON_TYPE(bool)
GODWIT_JSON_TYPE(int64_t)
GODWIT_JSON_TYPE(double)
GODWIT_JSON_TYPE(std::string)
GODWIT_JSON_TYPE(std::vector<int64_t>)
GODWIT_JSON_TYPE(std::vector<double>)
GODWIT_JSON_TYPE(std::vector<std::string>)
#undef GODWIT_JSON_TYPE

}  // namespace godwit
