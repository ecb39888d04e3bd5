#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/result.h"
#include "io/byte_reader.h"
#include "io/mapped_file.h"

namespace godwit {
namespace {

// What the smallest possible key–value pair and tensor record take, to refuse a count before anything is allocated.
constexpr uint64_t kMinItemBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr uint64_t kMaxItems = 1 << 20;  // keys or tensors; the largest known files have some ten thousand
constexpr uint32_t kMaxRank = 4;

}  // namespace

// Fills a Gguf from front to back. One use each.
class GgufReader {
 public:
  GgufReader(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string label)
      : bytes_(bytes), in_(bytes) {
    out_.owner_ = std::move(owner);
    out_.label_ = std::move(label);
  }

  Result<Gguf> read() {
    uint64_t tensors = 0, items = 0;
    GODWIT_TRY(read_header(tensors, items));
    GODWIT_TRY(read_metadata(items));
    std::vector<uint64_t> offsets;
    GODWIT_TRY(read_tensor_records(tensors, offsets));
    GODWIT_TRY(index_names());
    GODWIT_TRY(place_tensors(offsets));
    return std::move(out_);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) const {
    return errorf(ErrorCode::kBadData, "{}: {}", out_.label_, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  tl::unexpected<Error> unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    return errorf(ErrorCode::kUnsupported, "{}: {}", out_.label_, fmt::format(format, std::forward<Args>(args)...));
  }
  tl::unexpected<Error> truncated(std::string_view where) const {
    return bad("the file is truncated: it ends inside {}", where);
  }

  Status read_header(uint64_t& tensors, uint64_t& items) {
    std::string_view magic;
    if (!in_.read(magic, 4) || magic != "GGUF") return bad("not a GGUF file: it does not begin with 'GGUF'");
    if (!in_.read(out_.version_)) return truncated("the header");
    if (uint32_t swapped = __builtin_bswap32(out_.version_); out_.version_ > 0xFFFF && swapped <= 0xFFFF)
      return unsupported("GGUF of big-endian machines is not supported; convert it to little-endian");
    if (out_.version_ != 2 && out_.version_ != 3)
      return unsupported("GGUF version {} is not supported, only 2 and 3; convert the model again", out_.version_);
    if (!in_.read(tensors) || !in_.read(items)) return truncated("the header");
    if (items > kMaxItems || items > in_.remaining() / kMinItemBytes)
      return bad("{} metadata keys cannot be in a file of {} bytes (at most {} are read)", items, bytes_.size(),
                 kMaxItems);
    if (tensors > kMaxItems || tensors > in_.remaining() / kMinTensorBytes)
      return bad("{} tensors cannot be in a file of {} bytes (at most {} are read)", tensors, bytes_.size(), kMaxItems);
    return {};
  }

  Result<std::string_view> read_string(const std::string& where) {
    uint64_t length = 0;
    if (!in_.read(length)) return truncated(where);
    std::string_view text;
    if (!in_.read(text, length))
      return bad("{} has a string of {} bytes where {} bytes are left", where, length, in_.remaining());
    return text;
  }

  Status read_metadata(uint64_t count) {
    std::vector<GgufMetadata::Item> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      GODWIT_ASSIGN(std::string_view key, read_string(fmt::format("metadata key {} of {}", i + 1, count)));
      const std::string where = fmt::format("the metadata key '{}'", printable(key));
      uint32_t type = 0;
      if (!in_.read(type)) return truncated(where);
      items.push_back({std::string(key), GgufValue()});
      GODWIT_TRY(read_value(type, where, items.back().value));
    }
    GODWIT_ASSIGN(out_.metadata_, GgufMetadata::from_items(out_.label_, std::move(items)));
    GODWIT_ASSIGN(out_.alignment_, gguf_alignment(out_.metadata_, out_.label_));
    return {};
  }

  Status read_value(uint32_t type, const std::string& where, GgufValue& value) {
    switch (static_cast<GgufType>(type)) {
      case GgufType::kU8:
        return read_scalar<uint8_t>(where, value);
      case GgufType::kI8:
        return read_scalar<int8_t>(where, value);
      case GgufType::kU16:
        return read_scalar<uint16_t>(where, value);
      case GgufType::kI16:
        return read_scalar<int16_t>(where, value);
      case GgufType::kU32:
        return read_scalar<uint32_t>(where, value);
      case GgufType::kI32:
        return read_scalar<int32_t>(where, value);
      case GgufType::kF32:
        return read_scalar<float>(where, value);
      case GgufType::kU64:
        return read_scalar<uint64_t>(where, value);
      case GgufType::kI64:
        return read_scalar<int64_t>(where, value);
      case GgufType::kF64:
        return read_scalar<double>(where, value);
      case GgufType::kBool: {
        uint8_t byte = 0;
        if (!in_.read(byte)) return truncated(where);
        if (byte > 1) return bad("{} is a bool of value {}", where, byte);
        value = byte == 1;
        return {};
      }
      case GgufType::kString: {
        GODWIT_ASSIGN(std::string_view text, read_string(where));
        value = std::string(text);
        return {};
      }
      case GgufType::kArray:
        return read_array(where, value);
    }
    return unsupported("{} has the unknown value type {}", where, type);
  }

  template <class T>
  Status read_scalar(const std::string& where, GgufValue& value) {
    T number{};
    if (!in_.read(number)) return truncated(where);
    value = number;
    return {};
  }

  Status read_array(const std::string& where, GgufValue& value) {
    uint32_t type = 0;
    uint64_t length = 0;
    if (!in_.read(type) || !in_.read(length)) return truncated(where);
    switch (static_cast<GgufType>(type)) {
      case GgufType::kU8:
        return read_items<uint8_t>(where, length, value);
      case GgufType::kI8:
        return read_items<int8_t>(where, length, value);
      case GgufType::kU16:
        return read_items<uint16_t>(where, length, value);
      case GgufType::kI16:
        return read_items<int16_t>(where, length, value);
      case GgufType::kU32:
        return read_items<uint32_t>(where, length, value);
      case GgufType::kI32:
        return read_items<int32_t>(where, length, value);
      case GgufType::kF32:
        return read_items<float>(where, length, value);
      case GgufType::kBool:
        return read_items<bool>(where, length, value);
      case GgufType::kString:
        return read_items<std::string>(where, length, value);
      case GgufType::kU64:
        return read_items<uint64_t>(where, length, value);
      case GgufType::kI64:
        return read_items<int64_t>(where, length, value);
      case GgufType::kF64:
        return read_items<double>(where, length, value);
      case GgufType::kArray:
        return unsupported("{} is an array of arrays, which is not supported", where);
    }
    return unsupported("{} is an array of the unknown value type {}", where, type);
  }

  template <class T>
  Status read_items(const std::string& where, uint64_t length, GgufValue& value) {
    // In the file a string is at least its length, and a bool is one byte.
    constexpr size_t kFileBytes = std::is_same_v<T, std::string> ? 8 : std::is_same_v<T, bool> ? 1 : sizeof(T);
    if (length > in_.remaining() / kFileBytes)
      return bad("{} is an array of {} elements where {} bytes are left", where, length, in_.remaining());
    std::vector<T> items;
    if constexpr (std::is_same_v<T, std::string>) {
      items.reserve(length);
      for (uint64_t i = 0; i < length; ++i) {
        GODWIT_ASSIGN(std::string_view text, read_string(where));
        items.emplace_back(text);
      }
    } else {
      std::string_view raw;
      if (!in_.read(raw, length * kFileBytes)) return truncated(where);
      if constexpr (std::is_same_v<T, bool>) {
        if (auto odd = std::find_if(raw.begin(), raw.end(), [](char c) { return c != 0 && c != 1; }); odd != raw.end())
          return bad("{} has a bool of value {}", where, static_cast<uint8_t>(*odd));
        items.assign(raw.begin(), raw.end());
      } else {
        items.resize(length);
        if (length > 0) std::memcpy(items.data(), raw.data(), raw.size());
      }
    }
    value = GgufArray(std::move(items));
    return {};
  }

  Status read_tensor_records(uint64_t count, std::vector<uint64_t>& offsets) {
    out_.tensors_.reserve(count);
    offsets.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      GODWIT_ASSIGN(std::string_view name, read_string(fmt::format("tensor {} of {}", i + 1, count)));
      if (auto status = check_name("a tensor", name); !status) return bad("{}", status.error().message);
      TensorEntry& entry = out_.tensors_.emplace_back();
      entry.name = name;
      const std::string where = fmt::format("tensor '{}'", printable(name));
      uint32_t rank = 0;
      if (!in_.read(rank)) return truncated(where);
      if (rank > kMaxRank) return bad("{} has {} dimensions, allowed are {}", where, rank, kMaxRank);
      entry.shape.assign(std::max(rank, 1u), 1);
      for (uint32_t d = 0; d < rank; ++d) {
        uint64_t dim = 0;
        if (!in_.read(dim)) return truncated(where);
        if (dim == 0 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
          return bad("{} has a dimension of {}", where, dim);
        entry.shape[rank - 1 - d] = static_cast<int64_t>(dim);  // the file lists the innermost first
      }
      uint32_t type = 0;
      if (!in_.read(type) || !in_.read(offsets.emplace_back())) return truncated(where);
      std::optional<DType> dtype = dtype_from_gguf_id(type);
      if (!dtype) return unsupported("{} has the unsupported type {}", where, type);
      entry.dtype = *dtype;
    }
    return {};
  }

  Status index_names() {
    const auto& tensors = out_.tensors_;
    auto& order = out_.by_name_;
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
    auto equal = [&](uint32_t a, uint32_t b) { return tensors[a].name == tensors[b].name; };
    if (auto twice = std::adjacent_find(order.begin(), order.end(), equal); twice != order.end())
      return bad("tensor '{}' appears twice", printable(tensors[*twice].name));
    return {};
  }

  Status place_tensors(const std::vector<uint64_t>& offsets) {
    auto& tensors = out_.tensors_;
    const uint64_t align = out_.alignment_;
    // The position is inside a mapped file, so the sum cannot overflow.
    const uint64_t start = (in_.position() + align - 1) / align * align;
    const uint64_t room = start < bytes_.size() ? bytes_.size() - start : 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      TensorEntry& entry = tensors[i];
      const std::string where = fmt::format("tensor '{}'", printable(entry.name));
      auto size = tensor_bytes(entry.dtype, entry.shape);
      if (!size) return bad("{}: {}", where, size.error().message);
      if (offsets[i] % align != 0)
        return bad("{} begins at offset {}, which is not a multiple of the alignment {}", where, offsets[i], align);
      if (offsets[i] > room || *size > room - offsets[i])
        return bad("{} of {} bytes at offset {} ends past the {} bytes of data; the file is truncated or damaged",
                   where, *size, offsets[i], room);
      entry.bytes = bytes_.subspan(static_cast<size_t>(start + offsets[i]), *size);
    }

    std::vector<uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const TensorEntry &before = tensors[order[i - 1]], &after = tensors[order[i]];
      if (before.bytes.data() + before.bytes.size() > after.bytes.data())
        return bad("tensors '{}' and '{}' overlap", printable(before.name), printable(after.name));
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  ByteReader in_;
  Gguf out_;
};

Result<uint32_t> gguf_alignment(const GgufMetadata& metadata, std::string_view label) {
  const GgufValue* value = metadata.value(kGgufAlignmentKey);
  if (value == nullptr) return kGgufDefaultAlignment;
  const auto* alignment = std::get_if<uint32_t>(value);
  if (alignment == nullptr)
    return errorf(ErrorCode::kBadData, "{}: the metadata key '{}' should be u32, but is {}", label, kGgufAlignmentKey,
                  gguf_type_name(*value));
  if (!std::has_single_bit(*alignment) || *alignment < 8 || *alignment > (1u << 20))
    return errorf(ErrorCode::kBadData, "{}: an alignment of {} is not a power of two from 8 to 1048576", label,
                  *alignment);
  return *alignment;
}

Result<Gguf> Gguf::open(const std::filesystem::path& path) {
  GODWIT_ASSIGN(auto file, MappedFile::open(path));
  std::span<const std::byte> bytes = file->bytes();
  return parse(std::move(file), bytes, path.string());
}

Result<Gguf> Gguf::parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string label) {
  return GgufReader(std::move(owner), bytes, std::move(label)).read();
}

const TensorEntry* Gguf::find(std::string_view name) const {
  auto less = [&](uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; };
  auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name, less);
  return it != by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

}  // namespace godwit
