// A request as its own client sees it while it is under way.
#pragma once

#include "server/json_text.h"
#include <godwit/service.h>

namespace godwit::server {

inline std::string_view state_name(RequestStatus::State state) {
  using State = RequestStatus::State;
  return state == State::kWaiting ? "waiting" : state == State::kReading ? "reading" : "generating";
}

inline Json progress_json(const RequestStatus& r) {
  return {{"state", state_name(r.state)},
          {"prompt_tokens", r.prompt_tokens},
          {"computed_tokens", r.computed_tokens},
          {"cached_tokens", r.cached_tokens},
          {"completion_tokens", r.completion_tokens},
          {"kv_bytes", r.kv_bytes},
          {"kv_policy", r.kv.policy},
          {"kv_budget", r.kv.budget},
          {"kv_retained", r.kv_retained},
          {"prefill_ranks", r.ranks.prefill},
          {"decode_ranks", r.ranks.decode},
          {"seconds", r.seconds}};
}

// What an answer took, and over several ranks, how many of them.
inline Json with_ranks(Json usage, const RankDegrees& ranks) {
  if (ranks.prefill == 0) return usage;
  usage["prefill_ranks"] = ranks.prefill;
  usage["decode_ranks"] = ranks.decode;
  return usage;
}

}  // namespace godwit::server
