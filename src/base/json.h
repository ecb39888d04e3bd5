// JSON from files and requests nobody vouches for: parsing that is bounded in size and depth, and typed access whose
// errors name the file and the key. No exception leaves these functions.
//
// Only the forward declaration of nlohmann::json is included here; who looks inside a value includes
// <nlohmann/json.hpp> itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <godwit/status.h>

namespace godwit {

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;
  size_t max_values = size_t{16} << 20;  // numbers, strings, arrays, … in all: what bounds the memory
  int max_depth = 64;                    // arrays and objects inside one another; a bare value has depth 0
  bool unique_keys = false;              // false: of two equal keys in one object the later one counts, as in Python
};

// Parses one JSON text (RFC 8259, UTF-8). `label` is what errors call it: a file name, "request body".
// kBadData when it is malformed, kExhausted when it exceeds a limit.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view label, JsonLimits limits = {});
// The same, with the keys of objects in the order of the text.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, std::string_view label,
                                                  JsonLimits limits = {});

// Typed access to the members of an object. A view: the json value must outlive it.
//
// T is one of bool, int64_t, double, std::string, or a std::vector of the last three. A member that is null counts as
// absent, as in the configuration files of Hugging Face. An integer is accepted where a double is asked for; a double
// with an integral value is not an integer.
class JsonObject {
 public:
  // Fails when `value` is not an object.
  static Result<JsonObject> of(const nlohmann::json& value, std::string label);

  const std::string& label() const { return label_; }
  const nlohmann::json& value() const { return *value_; }
  bool has(std::string_view key) const { return member(key) != nullptr; }

  template <class T>
  Result<T> get(std::string_view key) const;  // kNotFound when absent
  template <class T>
  Result<std::optional<T>> find(std::string_view key) const;
  template <class T>
  Result<T> get_or(std::string_view key, T fallback) const;

  Result<JsonObject> object(std::string_view key) const;  // kNotFound when absent
  Result<std::optional<JsonObject>> find_object(std::string_view key) const;

 private:
  JsonObject(const nlohmann::json& value, std::string label, std::string path)
      : value_(&value), label_(std::move(label)), path_(std::move(path)) {}
  const nlohmann::json* member(std::string_view key) const;  // null when absent or JSON null
  tl::unexpected<Error> missing(std::string_view key) const;
  tl::unexpected<Error> wrong_type(std::string_view key, std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string label_;
  std::string path_;  // "" or "outer.inner." of a nested object
};

}  // namespace godwit
