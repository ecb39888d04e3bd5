#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "io/byte_reader.h"
#include "io/mapped_file.h"

namespace godwit {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation

struct FileType {
  std::string_view name;
  uint32_t bits;
  std::optional<DType> dtype;
};
// All types of the format, so that the size of a tensor is checked even if its values are of no use here.
constexpr std::array kFileTypes = {
    FileType{"F32", 32, DType::kF32},     FileType{"F16", 16, DType::kF16},     FileType{"BF16", 16, DType::kBF16},
    FileType{"I32", 32, DType::kI32},     FileType{"F64", 64, std::nullopt},    FileType{"I64", 64, std::nullopt},
    FileType{"U64", 64, std::nullopt},    FileType{"C64", 64, std::nullopt},    FileType{"U32", 32, std::nullopt},
    FileType{"I16", 16, std::nullopt},    FileType{"U16", 16, std::nullopt},    FileType{"I8", 8, std::nullopt},
    FileType{"U8", 8, std::nullopt},      FileType{"BOOL", 8, std::nullopt},    FileType{"F8_E4M3", 8, std::nullopt},
    FileType{"F8_E5M2", 8, std::nullopt}, FileType{"F8_E8M0", 8, std::nullopt}, FileType{"F6_E2M3", 6, std::nullopt},
    FileType{"F6_E3M2", 6, std::nullopt}, FileType{"F4", 4, std::nullopt},
};

const FileType* file_type(std::string_view name) {
  auto it = std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const FileType& type) { return type.name == name; });
  return it == kFileTypes.end() ? nullptr : &*it;
}

struct Range {
  uint64_t begin, end;
  std::string_view name;
};

// One member of the header, checked against the format but not yet against its neighbours.
struct Record {
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

Result<Record> parse_record(const json& value, const std::string& where) {
  GODWIT_ASSIGN(JsonObject object, JsonObject::of(value, where));
  Record record;
  GODWIT_ASSIGN(record.dtype, object.get<std::string>("dtype"));
  GODWIT_ASSIGN(record.shape, object.get<std::vector<int64_t>>("shape"));
  GODWIT_ASSIGN(std::vector<int64_t> offsets, object.get<std::vector<int64_t>>("data_offsets"));
  if (record.shape.empty()) record.shape.push_back(1);
  if (offsets.size() != 2 || offsets[0] < 0 || offsets[0] > offsets[1])
    return errorf(ErrorCode::kBadData, "{}: data_offsets {} are not a beginning and an end", where,
                  shape_text(std::span(offsets).first(std::min<size_t>(offsets.size(), 4))));
  record.begin = static_cast<uint64_t>(offsets[0]);
  record.end = static_cast<uint64_t>(offsets[1]);
  return record;
}

// The size that type and shape ask for; none when the type is one nobody knows.
Result<std::optional<uint64_t>> wanted_bytes(const Record& record) {
  const FileType* type = file_type(record.dtype);
  // The shape is checked in any case; i32 stands for types that tensor_bytes does not know.
  GODWIT_ASSIGN(size_t bytes, tensor_bytes(type != nullptr && type->dtype ? *type->dtype : DType::kI32, record.shape));
  if (type == nullptr) return std::optional<uint64_t>();
  if (type->dtype) return std::optional<uint64_t>(bytes);
  uint64_t elements = bytes / 4, bits = 0;
  if (__builtin_mul_overflow(elements, uint64_t{type->bits}, &bits))
    return errorf(ErrorCode::kBadData, "the shape {} has more bytes than a file can hold", shape_text(record.shape));
  return std::optional<uint64_t>((bits + 7) / 8);
}

// The format asks that the tensors cover the data without a gap or an overlap.
Status check_cover(std::vector<Range>& ranges, uint64_t room, const std::string& label) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t covered = 0;
  std::string_view before;
  for (const Range& range : ranges) {
    if (range.begin < covered)
      return errorf(ErrorCode::kBadData, "{}: tensors '{}' and '{}' overlap", label, printable(before),
                    printable(range.name));
    if (range.begin > covered)
      return errorf(ErrorCode::kBadData, "{}: {} bytes before tensor '{}' belong to no tensor", label,
                    range.begin - covered, printable(range.name));
    covered = range.end;
    before = range.name;
  }
  if (covered != room)
    return errorf(ErrorCode::kBadData, "{}: the last {} bytes of the file belong to no tensor", label, room - covered);
  return {};
}

Status read_metadata(const json& value, const std::string& label, std::map<std::string, std::string>& out) {
  if (!value.is_object()) return errorf(ErrorCode::kBadData, "{}: '__metadata__' is not an object", label);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      return errorf(ErrorCode::kBadData, "{}: '__metadata__' has the key '{}', which is not a string", label,
                    printable(key));
    out.emplace(key, text.get_ref<const std::string&>());
  }
  return {};
}

template <class T>
auto find_by_name(const std::vector<T>& items, std::string_view name) {
  auto it = std::lower_bound(items.begin(), items.end(), name,
                             [](const T& item, std::string_view wanted) { return item.name < wanted; });
  return it != items.end() && it->name == name ? &*it : nullptr;
}

}  // namespace

Result<Safetensors> Safetensors::parse(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                                       std::string label) {
  Safetensors out;
  out.owner_ = std::move(owner);
  out.label_ = std::move(label);
  const std::string& name = out.label_;

  ByteReader in(bytes);
  uint64_t header_bytes = 0;
  std::string_view text;
  if (!in.read(header_bytes)) return errorf(ErrorCode::kBadData, "{}: too short to be a safetensors file", name);
  if (header_bytes > kMaxHeaderBytes)
    return errorf(ErrorCode::kBadData, "{}: not a safetensors file, or one with a header of {} bytes, allowed are {}",
                  name, header_bytes, kMaxHeaderBytes);
  if (!in.read(text, header_bytes))
    return errorf(ErrorCode::kBadData, "{}: the file is truncated: it ends inside the header of {} bytes", name,
                  header_bytes);
  if (!text.starts_with('{'))
    return errorf(ErrorCode::kBadData, "{}: not a safetensors file: the header is not a JSON object", name);
  JsonLimits limits;
  limits.max_bytes = kMaxHeaderBytes;
  limits.max_values = size_t{4} << 20;
  limits.max_depth = 3;
  limits.unique_keys = true;
  GODWIT_ASSIGN(const json header, parse_json(text, name, limits));
  if (!header.is_object()) return errorf(ErrorCode::kBadData, "{}: the header is not a JSON object", name);

  const uint64_t room = in.remaining();
  std::vector<Range> ranges;
  for (const auto& [key, value] : header.get_ref<const json::object_t&>()) {
    if (key == "__metadata__") {
      GODWIT_TRY(read_metadata(value, name, out.metadata_));
      continue;
    }
    if (auto status = check_name("a tensor", key); !status)
      return errorf(ErrorCode::kBadData, "{}: {}", name, status.error().message);
    const std::string where = fmt::format("{}: tensor '{}'", name, printable(key));
    auto parsed = parse_record(value, where);
    if (!parsed) return fail(ErrorCode::kBadData, std::move(parsed).error().message);
    Record& record = *parsed;
    auto wanted = wanted_bytes(record);
    if (!wanted) return errorf(ErrorCode::kBadData, "{}: {}", where, wanted.error().message);
    if (record.end > room)
      return errorf(ErrorCode::kBadData, "{} ends at byte {} of {}; the file is truncated or damaged", where,
                    record.end, room);
    const uint64_t size = record.end - record.begin;
    if (*wanted && **wanted != size)
      return errorf(ErrorCode::kBadData, "{} of {} {} takes {} bytes, but has {}", where, record.dtype,
                    shape_text(record.shape), **wanted, size);
    ranges.push_back({record.begin, record.end, key});
    const FileType* type = file_type(record.dtype);
    if (type != nullptr && type->dtype) {
      out.tensors_.push_back({key, *type->dtype, std::move(record.shape),
                              bytes.subspan(in.position() + static_cast<size_t>(record.begin), size)});
    } else {
      out.unreadable_.push_back({key, printable(record.dtype)});
    }
  }
  GODWIT_TRY(check_cover(ranges, room, name));
  return out;
}

Result<const TensorEntry*> Safetensors::find(std::string_view name) const {
  if (const TensorEntry* entry = find_by_name(tensors_, name)) return entry;
  if (const Unreadable* entry = find_by_name(unreadable_, name))
    return errorf(ErrorCode::kUnsupported,
                  "{}: tensor '{}' has the unsupported type {}; F32, F16, BF16 and I32 are read", label_,
                  printable(name), entry->dtype);
  return nullptr;
}

Result<Safetensors> Safetensors::open_file(const std::filesystem::path& path) {
  GODWIT_ASSIGN(auto file, MappedFile::open(path));
  std::span<const std::byte> bytes = file->bytes();
  return parse(std::move(file), bytes, path.string());
}

Result<Safetensors> Safetensors::open_shards(const std::filesystem::path& index_path) {
  GODWIT_ASSIGN(auto index_file, MappedFile::open(index_path));
  const std::string label = index_path.string();
  GODWIT_ASSIGN(ShardIndex index, parse_shard_index(index_file->text(), label));

  auto shards = std::make_shared<std::vector<Safetensors>>();
  Safetensors out;
  out.label_ = index_path.parent_path().string();
  for (const std::string& name : index.files) {
    auto shard = open_file(index_path.parent_path() / name);
    if (!shard && shard.error().code == ErrorCode::kNotFound)
      return errorf(ErrorCode::kNotFound, "{}: the shard '{}' is missing; download the whole folder", label,
                    printable(name));
    if (!shard) return tl::unexpected(std::move(shard).error());
    for (const auto& [key, text] : shard->metadata_) out.metadata_.emplace(key, text);
    shards->push_back(std::move(*shard));
  }
  for (const auto& [name, file] : index.tensor_in) {
    const Safetensors& shard = (*shards)[file];
    if (const TensorEntry* entry = find_by_name(shard.tensors_, name)) {
      out.tensors_.push_back(*entry);
    } else if (const Unreadable* other = find_by_name(shard.unreadable_, name)) {
      out.unreadable_.push_back(*other);
    } else {
      return errorf(ErrorCode::kBadData, "{}: tensor '{}' is not in '{}', where the index has it", label,
                    printable(name), printable(index.files[file]));
    }
  }
  out.owner_ = std::move(shards);
  return out;
}

Result<Safetensors> Safetensors::open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return open_file(path);
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (!std::filesystem::exists(path / name, ignored)) continue;
    return std::string_view(name).ends_with(".json") ? open_shards(path / name) : open_file(path / name);
  }
  bool pickled = std::filesystem::exists(path / "pytorch_model.bin", ignored) ||
                 std::filesystem::exists(path / "pytorch_model.bin.index.json", ignored);
  return errorf(ErrorCode::kNotFound, "{}: neither model.safetensors nor model.safetensors.index.json is there{}",
                path.string(),
                pickled ? "; convert pytorch_model.bin with save_pretrained(…, safe_serialization=True)"
                        : "; download the model's weights as safetensors");
}

}  // namespace godwit
