#include <charconv>
#include <random>

#include <fmt/format.h>

#include "base/result.h"
#include "server/generation.h"

namespace godwit::server {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostBiases = 1024;

ApiResult<void> read_seed(const Fields& fields, SamplingOptions& sampling) {
  const nlohmann::json* seed = fields.find("seed");
  if (seed == nullptr) {
    sampling.seed = (uint64_t{std::random_device()()} << 32) | std::random_device()();
    return {};
  }
  if (!seed->is_number_integer()) return bad_field(fields.name("seed"), "'seed' must be an integer of 64 bits");
  sampling.seed = seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
  return {};
}

ApiResult<void> read_logit_bias(const Fields& fields, SamplingOptions& sampling) {
  const nlohmann::json* bias = fields.find("logit_bias");
  if (bias == nullptr) return {};
  const std::string name = fields.name("logit_bias");
  if (!bias->is_object() || bias->size() > kMostBiases)
    return bad_field(name,
                     fmt::format("'{}' must be an object of at most {} token ids and numbers", name, kMostBiases));
  for (const auto& item : bias->items()) {
    TokenId id = 0;
    const std::string& key = item.key();
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || !item.value().is_number() ||
        std::abs(item.value().get<double>()) > 100)
      return bad_field(name, fmt::format("'{}' must have token ids for keys and numbers from -100 to 100", name));
    sampling.logit_bias.emplace_back(id, item.value().get<float>());
  }
  return {};
}

// {"policy": "snapkv", "budget": "25%" or 512, "trigger": "chunk"}. Whether that is allowed is looked at with the
// prompt.
ApiResult<void> read_kv(const Fields& fields, Plan& plan) {
  const nlohmann::json* value = fields.find("kv");
  if (value == nullptr) return {};
  GODWIT_ASSIGN(const Fields kv, Fields::of(*value, fields.name("kv")));
  KvChoice choice;
  GODWIT_ASSIGN(choice.policy, kv.text("policy"));
  if (const nlohmann::json* budget = kv.find("budget"); budget != nullptr && budget->is_number_unsigned()) {
    choice.budget = std::to_string(budget->get<uint64_t>());
  } else {
    GODWIT_TRY(kv.read("budget", choice.budget));
  }
  GODWIT_TRY(kv.read("trigger", choice.trigger));
  for (const auto& item : value->items())
    if (item.key() != "policy" && item.key() != "budget" && item.key() != "trigger")
      return bad_field(kv.name(item.key()), fmt::format("'{}' is unknown; there are policy, budget and trigger",
                                                        kv.name(item.key().substr(0, 64))));
  plan.kv = std::move(choice);
  return {};
}

}  // namespace

ApiResult<void> read_plan(const App& app, const Fields& f, const FieldNames& names, Plan& plan) {
  SamplingOptions& s = plan.options.sampling;
  s.temperature = 1;      // as the protocols have it
  s.penalty_window = -1;  // likewise
  s = app.engine.recommended_sampling(s);
  GODWIT_TRY(f.read("stream", plan.stream));
  GODWIT_TRY(f.read("temperature", s.temperature, 0, 2));
  GODWIT_TRY(f.read("top_p", s.top_p, 1e-6, 1));
  GODWIT_TRY(f.read("top_k", s.top_k, -1, INT32_MAX));
  s.top_k = std::max(s.top_k, 0);
  GODWIT_TRY(f.read("min_p", s.min_p, 0, 1));
  GODWIT_TRY(f.read("presence_penalty", s.presence_penalty, -2, 2));
  GODWIT_TRY(f.read("frequency_penalty", s.frequency_penalty, -2, 2));
  GODWIT_TRY(f.read("repetition_penalty", s.repetition_penalty, 0.01, 10));
  GODWIT_TRY(read_seed(f, s));
  GODWIT_TRY(read_logit_bias(f, s));
  GODWIT_TRY(f.read(names.stop, plan.options.stop));
  if (plan.options.stop.size() > kMostStops)
    return bad_field(f.name(names.stop), fmt::format("'{}' may hold at most {} texts", f.name(names.stop), kMostStops));
  for (const std::string& stop : plan.options.stop)
    if (stop.empty()) return bad_field(f.name(names.stop), fmt::format("'{}' holds an empty text", f.name(names.stop)));
  GODWIT_TRY(f.read("stop_token_ids", plan.options.stop_tokens));
  GODWIT_TRY(f.read("ignore_eos", plan.options.ignore_eos));
  const int most = app.options.limits.output_tokens > 0 ? app.options.limits.output_tokens : INT32_MAX;
  for (auto name = names.max_tokens.rbegin(); name != names.max_tokens.rend(); ++name)
    GODWIT_TRY(f.read(*name, plan.options.max_tokens, 1, most));
  GODWIT_TRY(f.read("min_tokens", s.min_tokens, 0, most));
  if (plan.options.max_tokens >= 0 && s.min_tokens > plan.options.max_tokens)
    return bad_field(f.name("min_tokens"), fmt::format("'{}' is {}, and the answer may have at most {} tokens",
                                                       f.name("min_tokens"), s.min_tokens, plan.options.max_tokens));
  GODWIT_TRY(f.read("n", plan.choices, 1, app.options.limits.choices));
  GODWIT_TRY(f.read("cache_salt", plan.salt));
  GODWIT_TRY(read_kv(f, plan));
  GODWIT_TRY(f.read("ranks", plan.ranks.prefill, 1, INT32_MAX));
  GODWIT_TRY(f.read("decode_ranks", plan.ranks.decode, 1, INT32_MAX));
  if (f.has("priority")) {
    if (!app.options.client_priorities)
      return bad_field(f.name("priority"), "'priority': this server takes no priorities from clients");
    GODWIT_TRY(f.read("priority", plan.priority, -1000, 1000));
    plan.priority = -plan.priority;  // on the wire the smaller is the more urgent
  }
  return {};
}

ApiResult<void> check_model(const App& app, const Fields& fields) {
  std::string name = app.names.front();
  GODWIT_TRY(fields.read("model", name));
  for (const std::string& served : app.names)
    if (name == served) return {};
  return tl::unexpected(ApiError{
      .status = 404,
      .message = fmt::format("there is no model '{}' here; it is '{}'", name.substr(0, 128), app.names.front()),
      .param = "model",
      .code = "model_not_found"});
}

}  // namespace godwit::server
