#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "io/safetensors.h"

namespace godwit {
namespace {

using nlohmann::json;

// A shard is a plain file beside the index: a name that could lead anywhere else is refused.
bool is_plain_name(std::string_view name) {
  return check_name("a shard", name) && name.find_first_of("/\\") == std::string_view::npos && name.front() != '.' &&
         name.ends_with(".safetensors");
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, std::string_view label) {
  JsonLimits limits;
  limits.max_bytes = 100'000'000;
  limits.max_values = size_t{4} << 20;
  limits.max_depth = 8;
  limits.unique_keys = true;
  GODWIT_ASSIGN(const json root, parse_json(text, label, limits));
  GODWIT_ASSIGN(JsonObject object, JsonObject::of(root, std::string(label)));
  auto weight_map = object.object("weight_map");
  if (!weight_map) return fail(ErrorCode::kBadData, std::move(weight_map).error().message);

  ShardIndex index;
  std::map<std::string_view, uint32_t> seen;
  for (const auto& [name, value] : weight_map->value().get_ref<const json::object_t&>()) {
    if (auto status = check_name("a tensor", name); !status)
      return errorf(ErrorCode::kBadData, "{}: {}", label, status.error().message);
    if (!value.is_string())
      return errorf(ErrorCode::kBadData, "{}: tensor '{}' is not mapped to a file name", label, printable(name));
    const auto& file = value.get_ref<const std::string&>();
    if (!is_plain_name(file))
      return errorf(ErrorCode::kBadData,
                    "{}: tensor '{}' is mapped to '{}', which is not the plain name of a .safetensors file", label,
                    printable(name), printable(file));
    auto [slot, added] = seen.emplace(file, static_cast<uint32_t>(index.files.size()));
    if (added) index.files.push_back(file);
    index.tensor_in.emplace_back(name, slot->second);
  }
  if (index.files.empty()) return errorf(ErrorCode::kBadData, "{}: 'weight_map' is empty", label);
  return index;
}

}  // namespace godwit
