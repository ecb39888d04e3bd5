#include "io/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/result.h"
#include "io/tensor_entry.h"

namespace godwit {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                         "bool", "string", "array", "u64", "i64", "f64"};

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// One number of the file to the type asked for; false when it is of another kind or does not fit.
template <class To, class From>
bool convert_number(const From& from, To& to) {
  if constexpr (std::is_same_v<To, From>) {
    to = from;
    return true;
  } else if constexpr (std::is_floating_point_v<To> && (kIsInteger<From> || std::is_floating_point_v<From>)) {
    to = static_cast<To>(from);
    return true;
  } else if constexpr (kIsInteger<To> && kIsInteger<From>) {
    if (!std::in_range<To>(from)) return false;
    to = static_cast<To>(from);
    return true;
  } else {
    return false;
  }
}

template <class T>
struct Wanted {
  static constexpr std::string_view kName = std::is_same_v<T, bool>       ? "true or false"
                                            : std::is_same_v<T, double>   ? "a number"
                                            : std::is_same_v<T, uint64_t> ? "a non-negative integer"
                                                                          : "an integer";
  static bool convert(const GgufValue& value, T& to) {
    return std::visit([&](const auto& from) { return convert_number(from, to); }, value);
  }
};

template <>
struct Wanted<std::string> {
  static constexpr std::string_view kName = "a string";
  static bool convert(const GgufValue& value, std::string& to) {
    const auto* from = std::get_if<std::string>(&value);
    if (from != nullptr) to = *from;
    return from != nullptr;
  }
};

template <>
struct Wanted<std::span<const std::string>> {
  static constexpr std::string_view kName = "an array of strings";
  static bool convert(const GgufValue& value, std::span<const std::string>& to) {
    const auto* array = std::get_if<GgufArray>(&value);
    const auto* from = array != nullptr ? std::get_if<std::vector<std::string>>(array) : nullptr;
    if (from != nullptr) to = *from;
    return from != nullptr;
  }
};

template <class T>
struct Wanted<std::vector<T>> {
  static constexpr std::string_view kName =
      std::is_floating_point_v<T> ? "an array of numbers" : "an array of integers that fit 64 bits";
  static bool convert(const GgufValue& value, std::vector<T>& to) {
    const auto* array = std::get_if<GgufArray>(&value);
    if (array == nullptr) return false;
    return std::visit(
        [&](const auto& from) {
          using From = typename std::decay_t<decltype(from)>::value_type;
          to.reserve(from.size());
          for (const From& item : from)
            if (!convert_number(item, to.emplace_back())) return false;
          // An empty array still has a type, and a wrong one is still a mistake.
          T unused{};
          return convert_number(From{}, unused);
        },
        *array);
  }
};

}  // namespace

GgufType gguf_type(const GgufArray& array) {
  auto index = static_cast<uint32_t>(array.index());
  return static_cast<GgufType>(index < static_cast<uint32_t>(GgufType::kArray) ? index : index + 1);
}

std::string gguf_type_name(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value))
    return fmt::format("array of {}", kTypeNames[static_cast<size_t>(gguf_type(*array))]);
  return std::string(kTypeNames[value.index()]);
}

Result<GgufMetadata> GgufMetadata::from_items(std::string label, std::vector<Item> items) {
  GgufMetadata out(std::move(label));
  for (const Item& item : items)
    if (auto status = check_name("a metadata key", item.key); !status)
      return errorf(status.error().code, "{}: {}", out.label_, status.error().message);
  out.items_ = std::move(items);
  out.order_.resize(out.items_.size());
  std::iota(out.order_.begin(), out.order_.end(), 0u);
  auto key = [&](uint32_t i) -> const std::string& { return out.items_[i].key; };
  std::sort(out.order_.begin(), out.order_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  auto equal = [&](uint32_t a, uint32_t b) { return key(a) == key(b); };
  if (auto twice = std::adjacent_find(out.order_.begin(), out.order_.end(), equal); twice != out.order_.end())
    return errorf(ErrorCode::kBadData, "{}: the metadata key '{}' appears twice", out.label_, printable(key(*twice)));
  return out;
}

size_t GgufMetadata::position(std::string_view key) const {
  auto less = [&](uint32_t index, std::string_view wanted) { return items_[index].key < wanted; };
  return static_cast<size_t>(std::lower_bound(order_.begin(), order_.end(), key, less) - order_.begin());
}

const GgufValue* GgufMetadata::value(std::string_view key) const {
  size_t at = position(key);
  return at < order_.size() && items_[order_[at]].key == key ? &items_[order_[at]].value : nullptr;
}

Status GgufMetadata::set(std::string_view key, GgufValue value) {
  size_t at = position(key);
  if (at < order_.size() && items_[order_[at]].key == key) {
    items_[order_[at]].value = std::move(value);
    return {};
  }
  if (auto status = check_name("a metadata key", key); !status)
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", label_, status.error().message);
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(at), static_cast<uint32_t>(items_.size()));
  items_.push_back({std::string(key), std::move(value)});
  return {};
}

bool GgufMetadata::erase(std::string_view key) {
  size_t at = position(key);
  if (at == order_.size() || items_[order_[at]].key != key) return false;
  uint32_t gone = order_[at];
  items_.erase(items_.begin() + gone);
  order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(at));
  for (uint32_t& index : order_) index -= index > gone ? 1 : 0;
  return true;
}

template <class T>
Result<std::optional<T>> GgufMetadata::find(std::string_view key) const {
  const GgufValue* from = value(key);
  if (from == nullptr) return std::optional<T>();
  T to{};
  if (!Wanted<T>::convert(*from, to))
    return errorf(ErrorCode::kBadData, "{}: the metadata key '{}' should be {}, but is {}", label_, printable(key),
                  Wanted<T>::kName, gguf_type_name(*from));
  return std::optional<T>(std::move(to));
}

template <class T>
Result<T> GgufMetadata::get(std::string_view key) const {
  GODWIT_ASSIGN(std::optional<T> found, find<T>(key));
  if (!found) return errorf(ErrorCode::kNotFound, "{}: the metadata key '{}' is missing", label_, printable(key));
  return std::move(*found);
}

template <class T>
Result<T> GgufMetadata::get_or(std::string_view key, T fallback) const {
  GODWIT_ASSIGN(std::optional<T> found, find<T>(key));
  return found ? std::move(*found) : std::move(fallback);
}

#define GODWIT_GGUF_TYPE(...)                                                             \
  template Result<__VA_ARGS__> GgufMetadata::get(std::string_view) const;                 \
  template Result<std::optional<__VA_ARGS__>> GgufMetadata::find(std::string_view) const; \
  template Result<__VA_ARGS__> GgufMetadata::get_or(std::string_view, __VA_ARGS__) const;
GODWIT_GGUF_TYPE(bool)
GODWIT_GGUF_TYPE(int64_t)
GODWIT_GGUF_TYPE(uint64_t)
GODWIT_GGUF_TYPE(double)
GODWIT_GGUF_TYPE(std::string)
GODWIT_GGUF_TYPE(std::vector<int64_t>)
GODWIT_GGUF_TYPE(std::vector<float>)
GODWIT_GGUF_TYPE(std::span<const std::string>)
#undef GODWIT_GGUF_TYPE

}  // namespace godwit
