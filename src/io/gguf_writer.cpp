#include "io/gguf_writer.h"

#include <algorithm>
#include <type_traits>

#include "base/result.h"
#include "io/atomic_file.h"
#include "io/byte_reader.h"
#include "io/gguf.h"
#include "io/tensor_entry.h"

namespace godwit {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kMaxRank = 4;
constexpr std::string_view kLabel = "GGUF to be written";

uint64_t padded(uint64_t size, uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

template <class T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void put(std::string& out, bool value) {
  out.push_back(value ? 1 : 0);
}
void put(std::string& out, const std::string& text) {
  put(out, uint64_t{text.size()});
  out.append(text);
}
void put(std::string& out, const GgufArray& array) {
  put(out, static_cast<uint32_t>(gguf_type(array)));
  std::visit(
      [&](const auto& items) {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        put(out, uint64_t{items.size()});
        if constexpr (std::is_same_v<Item, std::string>)
          for (const std::string& item : items) put(out, item);
        else
          for (Item item : items) put(out, item);
      },
      array);
}

}  // namespace

Status GgufWriter::add(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
  auto wanted = tensor_bytes(dtype, shape);
  if (wanted && *wanted != bytes.size())
    return errorf(ErrorCode::kInvalidArgument, "{}: tensor '{}' of {} {} takes {} bytes, but {} were given", kLabel,
                  printable(name), dtype_name(dtype), shape_text(shape), *wanted, bytes.size());
  return add(std::move(name), dtype, std::move(shape), [bytes](const Sink& sink) { return sink(bytes); });
}

Status GgufWriter::add(std::string name, DType dtype, std::vector<int64_t> shape, Source source) {
  auto refuse = [&](std::string_view reason) {
    return errorf(ErrorCode::kInvalidArgument, "{}: tensor '{}': {}", kLabel, printable(name), reason);
  };
  if (auto status = check_name("a tensor", name); !status)
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", kLabel, status.error().message);
  auto bytes = tensor_bytes(dtype, shape);
  if (!bytes) return refuse(bytes.error().message);
  if (shape.size() > kMaxRank) return refuse(fmt::format("{} dimensions, allowed are {}", shape.size(), kMaxRank));
  if (*bytes == 0) return refuse(fmt::format("the shape {} has no elements", shape_text(shape)));
  if (!names_.insert(name).second) return refuse("added twice");
  tensors_.push_back({std::move(name), dtype, std::move(shape), *bytes, std::move(source)});
  return {};
}

Result<std::string> GgufWriter::header() const {
  GODWIT_ASSIGN(uint32_t alignment, gguf_alignment(metadata_, kLabel));
  std::string out = "GGUF";
  put(out, kVersion);
  put(out, uint64_t{tensors_.size()});
  put(out, uint64_t{metadata_.items().size()});
  for (const GgufMetadata::Item& item : metadata_.items()) {
    put(out, item.key);
    put(out, static_cast<uint32_t>(gguf_type(item.value)));
    std::visit([&](const auto& value) { put(out, value); }, item.value);
  }
  uint64_t offset = 0;
  for (const Pending& tensor : tensors_) {
    put(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) put(out, static_cast<uint64_t>(tensor.shape[d]));
    put(out, static_cast<uint32_t>(dtype_info(tensor.dtype).gguf_id));
    put(out, offset);
    offset += padded(tensor.bytes, alignment);
  }
  out.resize(padded(out.size(), alignment));
  return out;
}

Result<uint64_t> GgufWriter::file_bytes() const {
  GODWIT_ASSIGN(uint32_t alignment, gguf_alignment(metadata_, kLabel));
  GODWIT_ASSIGN(std::string front, header());
  uint64_t total = front.size();
  for (const Pending& tensor : tensors_) total += padded(tensor.bytes, alignment);
  return total;
}

Status GgufWriter::write(const Sink& sink) const {
  GODWIT_ASSIGN(uint32_t alignment, gguf_alignment(metadata_, kLabel));
  GODWIT_ASSIGN(std::string front, header());
  GODWIT_TRY(sink(std::as_bytes(std::span(front))));
  const std::vector<std::byte> zeros(alignment);
  for (const Pending& tensor : tensors_) {
    size_t given = 0;
    GODWIT_TRY(tensor.source([&](std::span<const std::byte> piece) -> Status {
      // Stops a source that gives too much before it fills the disk.
      if (piece.size() > tensor.bytes - given)
        return errorf(ErrorCode::kInvalidArgument, "{}: tensor '{}' takes {} bytes, but more were given", kLabel,
                      printable(tensor.name), tensor.bytes);
      given += piece.size();
      return sink(piece);
    }));
    if (given != tensor.bytes)
      return errorf(ErrorCode::kInvalidArgument, "{}: tensor '{}' takes {} bytes, but {} were given", kLabel,
                    printable(tensor.name), tensor.bytes, given);
    GODWIT_TRY(sink(std::span(zeros).first(padded(given, alignment) - given)));
  }
  return {};
}

Status GgufWriter::write(const std::filesystem::path& path) const {
  GODWIT_ASSIGN(uint64_t total, file_bytes());
  GODWIT_ASSIGN(AtomicFile file, AtomicFile::create(path, total));
  GODWIT_TRY(write([&](std::span<const std::byte> piece) { return file.write(piece); }));
  return file.commit();
}

}  // namespace godwit
