#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "kv/policy.h"

namespace godwit {
namespace {

constexpr MethodParam kParams[] = {
    {"gates", "", "JSON file with a gate for each KV head (docs/formats/companions.md)"},
    {"threshold", "0.5", "heads with a lower gate keep only sinks and the newest"},
};

class Duo final : public KvPolicy {
 public:
  Duo(std::vector<std::vector<bool>> streams, size_t sinks, size_t recent)
      : streams_(std::move(streams)), sinks_(sinks), recent_(recent) {}

  size_t least_slots() const override { return sinks_ + recent_; }
  void score(const KvHeadView& head, std::span<float> scores) const override {
    if (!streams_[static_cast<size_t>(head.layer)][static_cast<size_t>(head.head)]) {
      std::fill(scores.begin(), scores.end(), 0.0F);
      return;
    }
    std::fill(scores.begin(), scores.end(), kDropSlot);
    protect(head, sinks_, recent_, scores);
  }

 private:
  std::vector<std::vector<bool>> streams_;  // [layers][kv_heads]
  size_t sinks_, recent_;
};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return errorf(ErrorCode::kNotFound, "{}: the gates of KV policy 'duo' cannot be read: {}", path,
                  std::strerror(errno));
  return std::move(text).str();
}

Result<std::unique_ptr<const KvPolicy>> make(const MethodArgs& args, const KvShape& shape) {
  const std::string& path = args.text("gates");
  if (path.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "KV policy 'duo' needs gates that were fitted to the model: give duo:gates=FILE");
  GODWIT_ASSIGN(const double threshold, args.real("threshold", 0, 1));
  GODWIT_ASSIGN(const std::string text, read_file(path));
  GODWIT_ASSIGN(const nlohmann::json json, parse_json(text, path, {.max_bytes = size_t{16} << 20}));
  GODWIT_ASSIGN(const JsonObject file, JsonObject::of(json, path));
  GODWIT_ASSIGN(const std::string format, file.get<std::string>("format"));
  if (format != "godwit.duo-gates.1")
    return errorf(ErrorCode::kUnsupported, "{}: the format is '{}'; godwit.duo-gates.1 is what we read", path, format);
  GODWIT_ASSIGN(const int64_t sinks, file.get<int64_t>("sinks"));
  GODWIT_ASSIGN(const int64_t recent, file.get<int64_t>("recent"));
  if (sinks < 0 || recent < 1 || sinks > (1 << 20) || recent > (1 << 20))
    return errorf(ErrorCode::kBadData, "{}: {} sinks and {} recent tokens make no sense", path, sinks, recent);

  const auto gates = json.find("gates");
  std::vector<std::vector<bool>> streams;
  for (const nlohmann::json& layer : gates != json.end() && gates->is_array() ? *gates : nlohmann::json::array()) {
    std::vector<bool>& heads = streams.emplace_back();
    for (const nlohmann::json& gate : layer.is_array() ? layer : nlohmann::json::array()) {
      if (!gate.is_number()) return errorf(ErrorCode::kBadData, "{}: a gate is no number", path);
      heads.push_back(gate.get<double>() < threshold);
    }
    if (heads.size() != static_cast<size_t>(shape.kv_heads))
      return errorf(ErrorCode::kInvalidArgument, "{}: layer {} has {} gates, but the model has {} KV heads", path,
                    streams.size() - 1, heads.size(), shape.kv_heads);
  }
  if (streams.size() != static_cast<size_t>(shape.layers))
    return errorf(ErrorCode::kInvalidArgument, "{}: there are gates for {} layers, but the model has {}", path,
                  streams.size(), shape.layers);
  return std::make_unique<Duo>(std::move(streams), static_cast<size_t>(sinks), static_cast<size_t>(recent));
}

}  // namespace

// A head that retrieves keeps everything, or the newest where a budget is given besides. Deviation: streaming heads
// drop when the trigger fires; inside a chunk they still see all of it.
extern const KvPolicyRow kv_policy_duo = {
    .info = {.name = "duo",
             .description = "retrieval heads keep everything, streaming heads the first tokens and the newest",
             .reference =
                 "Xiao et al., DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming "
                 "Heads, arXiv 2410.10819",
             .params = kParams},
    .trigger = "chunk",
    .needs_budget = false,
    .comparable_scores = true,
    .make = make,
};

}  // namespace godwit
