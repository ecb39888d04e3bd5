// What an engine's options are to the other ranks of its job.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "dist/mpi_link.h"
#include "engine/team.h"

namespace godwit {

Status check_rank_options(const EngineOptions& o) {
  auto refused = [&](std::string_view what, std::string_view value, std::string_view why) {
    return errorf(ErrorCode::kUnsupported, "{} '{}' does not work over {} ranks: {}", what, value, o.ranks->size(),
                  why);
  };
  if (o.prefill != "dense") return refused("prefill method", o.prefill, "attention over ranks is dense; leave it out");
  if (o.decode != "dense") return refused("decode method", o.decode, "attention over ranks is dense; leave it out");
  const RankOptions& r = o.rank_options;
  if (r.ring != "auto" && r.ring != "pass-kv" && r.ring != "pass-q")
    return errorf(ErrorCode::kInvalidArgument, "there is no ring '{}': give auto, pass-kv or pass-q", r.ring);
  for (int ranks : {r.prefill_ranks, r.decode_ranks})
    if (ranks < 0 || ranks > o.ranks->size())
      return errorf(ErrorCode::kInvalidArgument, "{} ranks were asked for, and there are {}", ranks, o.ranks->size());
  if (!o.kv_policy.empty() && r.decode_ranks != 0 && r.decode_ranks != r.prefill_ranks)
    return refused("KV policy", o.kv_policy,
                   "entries that were dropped leave gaps, and what is left does not move to other ranks; leave the "
                   "ranks of answers out");
  if (!(r.timeout_s > 0))
    return errorf(ErrorCode::kInvalidArgument, "a rank timeout of {} s makes no sense", r.timeout_s);
  if (!(r.link_latency_s >= 0) || !(r.link_bytes_per_second >= 0))
    return errorf(ErrorCode::kInvalidArgument, "a link of {} s and {} bytes/s makes no sense", r.link_latency_s,
                  r.link_bytes_per_second);
  if (r.link_bytes_per_second > 0 && dist::mpi_local_size() < dist::mpi_size())
    return errorf(
        ErrorCode::kUnsupported,
        "a --link that is slowed down goes by the clock of one host, and these ranks are on several; leave it "
        "out, or start all ranks on one host");
  return {};
}

std::string rules_text(const KvRetentionRules* rules) {
  if (rules == nullptr) return {};
  const KvRetentionOptions& o = rules->written;
  return nlohmann::json{{"policy", o.policy}, {"budget", o.budget}, {"trigger", o.trigger}}.dump();
}

Result<std::shared_ptr<const KvRetentionRules>> Team::rules_from(std::span<const std::byte> text) const {
  if (text.empty()) return nullptr;
  const char* begin = reinterpret_cast<const char*>(text.data());
  const nlohmann::json j = nlohmann::json::parse(begin, begin + text.size(), nullptr, false);
  KvRetentionOptions o;
  o.prefill_chunk = engine_.options.prefill_chunk;
  o.equal_pages = engine_.pool->equal_pages();
  try {
    j.at("policy").get_to(o.policy);
    j.at("budget").get_to(o.budget);
    j.at("trigger").get_to(o.trigger);
  } catch (const nlohmann::json::exception& error) {
    return errorf(ErrorCode::kBadData, "rank 0 sent KV rules that make no sense: {}", error.what());
  }
  const auto policy = policies_.find(o.policy);
  if (policy == policies_.end())
    return errorf(ErrorCode::kBadData, "rank 0 speaks of a KV policy '{}' that was never allowed", o.policy);
  return KvRetentionRules::make(policy->second, o, engine_.model->kv_shape(), engine_.pool->format(),
                                engine_.model->config().heads);
}

Status Team::make_policies(std::string_view list) {
  const nlohmann::json j = nlohmann::json::parse(list, nullptr, false);
  if (!j.is_array()) return errorf(ErrorCode::kBadData, "rank 0 sent KV policies that make no sense");
  for (const nlohmann::json& spec : j) {
    if (!spec.is_string()) return errorf(ErrorCode::kBadData, "rank 0 sent KV policies that make no sense");
    const auto text = spec.get<std::string>();
    GODWIT_ASSIGN(policies_[text], make_kv_policy(text, engine_.model->kv_shape()));
  }
  return {};
}

Status Team::allow(std::span<const std::string> policies) {
  if (policies.empty()) return {};
  const std::string list = nlohmann::json(std::vector(policies.begin(), policies.end())).dump();
  std::lock_guard lock(ranks_.mutex);
  GODWIT_TRY(tell({.verb = RankVerb::kAllow}, std::as_bytes(std::span(list))));
  return ranks_.agree({});  // rank 0 has made its own
}

std::string rank_options_text(const EngineOptions& o) {
  const RankOptions& r = o.rank_options;
  return nlohmann::json{{"model", o.model},
                        {"threads", o.threads},
                        {"simd", o.simd},
                        {"context_tokens", o.context_tokens},
                        {"kv_budget_bytes", o.kv_budget_bytes},
                        {"prefill_chunk", o.prefill_chunk},
                        {"kv_codec", o.kv_codec},
                        {"kv_policy", o.kv_policy},
                        {"kv_budget", o.kv_budget},
                        {"kv_trigger", o.kv_trigger},
                        {"profile", o.profile},
                        {"ring", r.ring},
                        {"overlap", r.overlap},
                        {"exact", r.exact},
                        {"balance", r.balance},
                        {"share_memory", r.share_memory},
                        {"steal", r.steal},
                        {"timeout_s", r.timeout_s},
                        {"link_latency_s", r.link_latency_s},
                        {"link_bytes_per_second", r.link_bytes_per_second}}
      .dump();
}

Result<EngineOptions> rank_options_from(std::string_view text) {
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object() || j.size() != 20) return errorf(ErrorCode::kBadData, "rank 0 sent options that make no sense");
  EngineOptions o;
  RankOptions& r = o.rank_options;
  try {
    j.at("model").get_to(o.model);
    j.at("threads").get_to(o.threads);
    j.at("simd").get_to(o.simd);
    j.at("context_tokens").get_to(o.context_tokens);
    j.at("kv_budget_bytes").get_to(o.kv_budget_bytes);
    j.at("prefill_chunk").get_to(o.prefill_chunk);
    j.at("kv_codec").get_to(o.kv_codec);
    j.at("kv_policy").get_to(o.kv_policy);
    j.at("kv_budget").get_to(o.kv_budget);
    j.at("kv_trigger").get_to(o.kv_trigger);
    j.at("profile").get_to(o.profile);
    j.at("ring").get_to(r.ring);
    j.at("overlap").get_to(r.overlap);
    j.at("exact").get_to(r.exact);
    j.at("balance").get_to(r.balance);
    j.at("share_memory").get_to(r.share_memory);
    j.at("steal").get_to(r.steal);
    j.at("timeout_s").get_to(r.timeout_s);
    j.at("link_latency_s").get_to(r.link_latency_s);
    j.at("link_bytes_per_second").get_to(r.link_bytes_per_second);
  } catch (const nlohmann::json::exception& error) {
    return errorf(ErrorCode::kBadData, "rank 0 sent options that make no sense: {}", error.what());
  }
  return o;
}

}  // namespace godwit
