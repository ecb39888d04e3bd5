#include "kv/codec_tables.h"

#include <cmath>
#include <cstring>

#include "io/gguf_writer.h"
#include "tensor/half.h"

namespace godwit {
namespace {

constexpr std::string_view kCodecKey = "godwit.kv_codec", kModelKey = "godwit.model", kSettings = "godwit.";

}  // namespace

Result<CodecTables> CodecTables::open(std::string_view codec, const std::string& path) {
  GODWIT_ASSIGN(Gguf file, Gguf::open(path));
  const auto made_for = file.string(kCodecKey);
  if (!made_for)
    return errorf(ErrorCode::kUnsupported, "{}: holds no tables of KV codec '{}'; make them by `godwit tune {}`", path,
                  codec, codec);
  if (*made_for != codec)
    return errorf(ErrorCode::kInvalidArgument, "{}: was made for KV codec '{}', not '{}'", path, printable(*made_for),
                  codec);
  return CodecTables(std::move(file));
}

Result<std::vector<float>> CodecTables::numbers(std::string_view name, const std::vector<int64_t>& shape) const {
  const TensorEntry* tensor = file_.find(name);
  if (tensor == nullptr) return errorf(ErrorCode::kBadData, "{}: has no tensor '{}'", file_.label(), name);
  if (tensor->shape.size() != shape.size() + 1 || !std::equal(shape.begin(), shape.end(), tensor->shape.begin() + 1))
    return errorf(ErrorCode::kInvalidArgument, "{}: '{}' is {}, but the model wants {} behind the first; fit it again",
                  file_.label(), name, shape_text(tensor->shape), shape_text(shape));
  const bool half = tensor->dtype == DType::kF16;
  if (!half && tensor->dtype != DType::kF32)
    return errorf(ErrorCode::kUnsupported, "{}: '{}' is in {}; f16 and f32 are what we read", file_.label(), name,
                  dtype_name(tensor->dtype));
  std::vector<float> numbers(tensor->bytes.size() / (half ? 2 : 4));
  if (half) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, tensor->bytes.data() + 2 * i, sizeof(bits));
      numbers[i] = f16_to_float(bits);
    }
  } else {
    std::memcpy(numbers.data(), tensor->bytes.data(), tensor->bytes.size());
  }
  for (float x : numbers)
    if (!std::isfinite(x))
      return errorf(ErrorCode::kBadData, "{}: a number of '{}' is not finite", file_.label(), name);
  return numbers;
}

Result<int64_t> CodecTables::integer(std::string_view key, int64_t min, int64_t max) const {
  GODWIT_ASSIGN(const int64_t value, file_.i64(std::string(kSettings) + std::string(key)));
  if (value < min || value > max)
    return errorf(ErrorCode::kBadData, "{}: {} is {}; it can be {} to {}", file_.label(), key, value, min, max);
  return value;
}

Status write_codec_tables(std::string_view codec, std::string_view model,
                          const std::vector<std::pair<std::string, uint32_t>>& settings,
                          const std::vector<CodecTable>& tables, const std::filesystem::path& path) {
  GgufWriter writer;
  GODWIT_TRY(writer.metadata().set(kCodecKey, std::string(codec)));
  GODWIT_TRY(writer.metadata().set(kModelKey, std::string(model)));
  for (const auto& [key, value] : settings) GODWIT_TRY(writer.metadata().set(std::string(kSettings) + key, value));
  std::vector<std::vector<uint16_t>> halves;
  for (const CodecTable& table : tables) {
    std::vector<uint16_t>& half = halves.emplace_back();
    for (float x : table.numbers) half.push_back(float_to_f16(std::clamp(x, -kF16Max, kF16Max)));
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    const CodecTable& table = tables[i];
    const auto bytes =
        table.dtype == DType::kF32 ? std::as_bytes(std::span(table.numbers)) : std::as_bytes(std::span(halves[i]));
    GODWIT_TRY(writer.add(table.name, table.dtype, table.shape, bytes));
  }
  return writer.write(path);
}

Status check_codec_tables(const KvFormat& format, const KvShape& shape, std::string_view codec) {
  const size_t tables = format.sealed_form ? format.sealed_form->tables() : 0;
  const auto heads = static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.kv_heads);
  if (tables != 0 && tables != heads)
    return errorf(ErrorCode::kInvalidArgument,
                  "the file of KV codec '{}' was fitted to {} KV heads, and this model has {} layers of {}; fit one to "
                  "this model by `godwit tune`",
                  codec, tables, shape.layers, shape.kv_heads);
  return {};
}

}  // namespace godwit
