// What an engine's options are to the other ranks of its job.
#include <nlohmann/json.hpp>

#include "base/json.h"
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
  return {};
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
                        {"share_memory", r.share_memory},
                        {"timeout_s", r.timeout_s},
                        {"link_latency_s", r.link_latency_s},
                        {"link_bytes_per_second", r.link_bytes_per_second}}
      .dump();
}

Result<EngineOptions> rank_options_from(std::string_view text) {
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object() || j.size() != 18) return errorf(ErrorCode::kBadData, "rank 0 sent options that make no sense");
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
    j.at("share_memory").get_to(r.share_memory);
    j.at("timeout_s").get_to(r.timeout_s);
    j.at("link_latency_s").get_to(r.link_latency_s);
    j.at("link_bytes_per_second").get_to(r.link_bytes_per_second);
  } catch (const nlohmann::json::exception& error) {
    return errorf(ErrorCode::kBadData, "rank 0 sent options that make no sense: {}", error.what());
  }
  return o;
}

}  // namespace godwit
