// The key–value part of a GGUF file: what the reader fills and the writer takes.
//
// Every value keeps its exact GGUF type, so that a file written from what was read is the same file; the typed getters
// convert. Keys are unique and keep their order. A plain value type: copy it, move it; const access is thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <godwit/status.h>

namespace godwit {

// The numbers are the file's.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Arrays in the order of the enum without kArray: arrays of arrays are not supported.
using GgufArray =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                 std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
                 std::vector<std::string>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
// In the order of the enum. Strings are bytes: most files hold UTF-8, nothing checks it.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                               GgufArray, uint64_t, int64_t, double>;

inline GgufType gguf_type(const GgufValue& value) {
  return static_cast<GgufType>(value.index());
}
GgufType gguf_type(const GgufArray& array);          // of the elements
std::string gguf_type_name(const GgufValue& value);  // "u32", "array of string"

class GgufMetadata {
 public:
  struct Item {
    std::string key;
    GgufValue value;
    bool operator==(const Item&) const = default;
  };

  // `label` begins the messages: the file's name.
  explicit GgufMetadata(std::string label = "metadata") : label_(std::move(label)) {}
  static Result<GgufMetadata> from_items(std::string label, std::vector<Item> items);  // kBadData: equal or bad keys

  std::span<const Item> items() const { return items_; }
  const GgufValue* value(std::string_view key) const;  // null when absent
  bool has(std::string_view key) const { return value(key) != nullptr; }

  // T is one of bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>, std::vector<float> or
  // std::span<const std::string>, which lives as long as this object. Integers of any width convert when the value
  // fits, integers convert to floating point; nothing else converts.
  template <class T>
  Result<T> get(std::string_view key) const;  // kNotFound when absent
  template <class T>
  Result<std::optional<T>> find(std::string_view key) const;
  template <class T>
  Result<T> get_or(std::string_view key, T fallback) const;

  Status set(std::string_view key, GgufValue value);  // replaces in place, or appends
  bool erase(std::string_view key);                   // false when absent

 private:
  size_t position(std::string_view key) const;  // the first place in order_ whose key is not less

  std::string label_;
  std::vector<Item> items_;
  std::vector<uint32_t> order_;  // indices of items_ sorted by key
};

}  // namespace godwit
