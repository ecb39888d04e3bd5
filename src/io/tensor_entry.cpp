#include "io/tensor_entry.h"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "base/result.h"

namespace godwit {
namespace {

constexpr size_t kMaxNameBytes = 65535;
constexpr size_t kShownBytes = 100;

// Length of the UTF-8 sequence at the start of `text`, or 0 when it is malformed.
size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  auto tail = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!tail(1) || !tail(2)) return 0;
    bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    bool surrogate = lead == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    bool overlong = lead == 0xF0 && byte(1) < 0x90;
    bool beyond = lead == 0xF4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

bool is_control(char c) {
  return static_cast<uint8_t>(c) < 0x20 || c == 0x7F;
}

}  // namespace

Result<size_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  const DTypeInfo& info = dtype_info(dtype);
  if (shape.empty() || shape.size() > TensorEntry::kMaxRank)
    return errorf(ErrorCode::kBadData, "{} dimensions, allowed are 1 to {}", shape.size(), TensorEntry::kMaxRank);
  // Zeros are left out of the running product, so that [2^62, 2^62, 0] is caught as well.
  int64_t product = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) return errorf(ErrorCode::kBadData, "a negative dimension in {}", shape_text(shape));
    if (dim == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, dim, &product))
      return errorf(ErrorCode::kBadData, "the shape {} has more elements than a file can hold", shape_text(shape));
  }
  if (shape.back() % info.block_elements != 0)
    return errorf(ErrorCode::kBadData, "rows of {} elements are not whole {} blocks of {}", shape.back(), info.name,
                  info.block_elements);
  if (empty) return size_t{0};
  int64_t bytes = 0;
  if (__builtin_mul_overflow(product / info.block_elements, int64_t{info.block_bytes}, &bytes))
    return errorf(ErrorCode::kBadData, "the shape {} has more bytes than a file can hold", shape_text(shape));
  return static_cast<size_t>(bytes);
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string printable(std::string_view name) {
  std::string out;
  size_t at = 0;
  while (at < name.size() && at < kShownBytes) {
    size_t length = utf8_length(name.substr(at));
    if (length == 0 || is_control(name[at])) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(name[at]));
      ++at;
    } else {
      out.append(name, at, length);
      at += length;
    }
  }
  if (at < name.size()) out += "…";
  return out;
}

Status check_name(std::string_view kind, std::string_view name) {
  if (name.empty()) return errorf(ErrorCode::kBadData, "{} has an empty name", kind);
  if (name.size() > kMaxNameBytes)
    return errorf(ErrorCode::kBadData, "{} '{}' has a name of {} bytes, allowed are {}", kind, printable(name),
                  name.size(), kMaxNameBytes);
  for (size_t at = 0; at < name.size();) {
    size_t length = utf8_length(name.substr(at));
    if (length == 0) return errorf(ErrorCode::kBadData, "{} '{}' has a name that is not UTF-8", kind, printable(name));
    if (is_control(name[at]))
      return errorf(ErrorCode::kBadData, "{} '{}' has a control character in its name", kind, printable(name));
    at += length;
  }
  return {};
}

}  // namespace godwit
