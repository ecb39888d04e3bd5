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
          {"seconds", r.seconds}};
}

}  // namespace godwit::server
