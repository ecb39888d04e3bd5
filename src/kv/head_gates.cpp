#include "kv/head_gates.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "io/mapped_file.h"

namespace godwit {

Result<HeadGates> HeadGates::read(std::string_view policy, const std::string& path, const KvShape& shape) {
  if (path.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "KV policy '{}' needs gates that were fitted to the model: give {}:gates=FILE", policy, policy);
  GODWIT_ASSIGN(const auto file, MappedFile::open(path));
  GODWIT_ASSIGN(const nlohmann::json json, parse_json(file->text(), path, {.max_bytes = size_t{16} << 20}));
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(json, path));
  GODWIT_ASSIGN(const std::string format, object.get<std::string>("format"));
  if (format != "godwit.duo-gates.1")
    return errorf(ErrorCode::kUnsupported, "{}: the format is '{}'; godwit.duo-gates.1 is what we read", path, format);
  GODWIT_ASSIGN(const int64_t sinks, object.get<int64_t>("sinks"));
  GODWIT_ASSIGN(const int64_t recent, object.get<int64_t>("recent"));
  if (sinks < 0 || recent < 1 || sinks > (1 << 20) || recent > (1 << 20))
    return errorf(ErrorCode::kBadData, "{}: {} sinks and {} recent tokens make no sense", path, sinks, recent);

  HeadGates result{.sinks = static_cast<size_t>(sinks), .recent = static_cast<size_t>(recent), .gates = {}};
  const auto gates = json.find("gates");
  for (const nlohmann::json& layer : gates != json.end() && gates->is_array() ? *gates : nlohmann::json::array()) {
    std::vector<double>& heads = result.gates.emplace_back();
    for (const nlohmann::json& gate : layer.is_array() ? layer : nlohmann::json::array()) {
      if (!gate.is_number()) return errorf(ErrorCode::kBadData, "{}: a gate is no number", path);
      heads.push_back(gate.get<double>());
    }
    if (heads.size() != static_cast<size_t>(shape.kv_heads))
      return errorf(ErrorCode::kInvalidArgument, "{}: layer {} has {} gates, but the model has {} KV heads", path,
                    result.gates.size() - 1, heads.size(), shape.kv_heads);
  }
  if (result.gates.size() != static_cast<size_t>(shape.layers))
    return errorf(ErrorCode::kInvalidArgument, "{}: there are gates for {} layers, but the model has {}", path,
                  result.gates.size(), shape.layers);
  return result;
}

}  // namespace godwit
