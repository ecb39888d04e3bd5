#include "kv/layer_bits.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/mapped_file.h"

namespace godwit {
namespace {

constexpr std::string_view kFormat = "godwit.kv-bits.1";

Status check(std::string_view label, std::span<const LayerBits> bits, int layers) {
  if (bits.size() != static_cast<size_t>(layers))
    return errorf(ErrorCode::kInvalidArgument, "{}: there are bits for {} layers, but the model has {}", label,
                  bits.size(), layers);
  for (size_t i = 0; i < bits.size(); ++i)
    for (int each : {bits[i].k, bits[i].v})
      if (each != 2 && each != 4 && each != 8)
        return errorf(ErrorCode::kBadData, "{}: layer {} has {} bits; it can be 2, 4 or 8", label, i, each);
  return {};
}

}  // namespace

Result<std::vector<LayerBits>> read_layer_bits(const std::string& path, int layers) {
  GODWIT_ASSIGN(const auto file, MappedFile::open(path));
  GODWIT_ASSIGN(const nlohmann::json json, parse_json(file->text(), path, {.max_bytes = size_t{1} << 20}));
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(json, path));
  GODWIT_ASSIGN(const std::string format, object.get<std::string>("format"));
  if (format != kFormat)
    return errorf(ErrorCode::kUnsupported, "{}: the format is '{}'; {} is what we read", path, format, kFormat);
  std::vector<LayerBits> bits;
  const auto list = json.find("bits");
  for (const nlohmann::json& pair : list != json.end() && list->is_array() ? *list : nlohmann::json::array()) {
    const auto whole = [](const nlohmann::json& x) { return x.is_number_integer() && x >= 0 && x <= 64; };
    if (!pair.is_array() || pair.size() != 2 || !whole(pair[0]) || !whole(pair[1]))
      return errorf(ErrorCode::kBadData, "{}: bits of layer {} are not two numbers, of K and of V", path, bits.size());
    bits.push_back({pair[0].get<int>(), pair[1].get<int>()});
  }
  GODWIT_TRY(check(path, bits, layers));
  return bits;
}

Result<std::vector<LayerBits>> parse_layer_bits(std::string_view text, int layers) {
  std::vector<LayerBits> bits;
  for (size_t i = 0; i < text.size(); i += 3) {
    const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (!digit(i) || !digit(i + 1) || (i + 2 < text.size() && (text[i + 2] != '-' || i + 3 == text.size())))
      return errorf(ErrorCode::kInvalidArgument,
                    "'{}' are no bits of layers; give two digits for each, of K and of V: 84-44-42", text);
    bits.push_back({text[i] - '0', text[i + 1] - '0'});
  }
  GODWIT_TRY(check(text, bits, layers));
  return bits;
}

std::string layer_bits_text(std::span<const LayerBits> bits) {
  std::string text;
  for (const LayerBits& each : bits) text += fmt::format("{}{}{}", text.empty() ? "" : "-", each.k, each.v);
  return text;
}

}  // namespace godwit
