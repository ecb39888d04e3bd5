// GET /status: what is going on, for the page and for whoever wants to know. Somebody else's requests are numbers only.
#include "server/app.h"
#include "server/request_json.h"

namespace godwit::server {

ApiResult<void> status(const App& app, const Call& call) {
  const ServiceStats stats = app.service.stats();
  Json own = Json::array(), others = {{"waiting", 0}, {"reading", 0}, {"generating", 0}};
  double retained = 0, counted = 0;  // weighed by the memory that each would hold
  for (const RequestStatus& request : app.service.requests()) {
    if (request.kv_retained > 0) {
      retained += static_cast<double>(request.kv_bytes);
      counted += static_cast<double>(request.kv_bytes) / request.kv_retained;
    }
    if (request.principal == call.principal) {
      Json one = {{"id", request.name}};
      one.update(progress_json(request));
      own.push_back(std::move(one));
    } else {
      Json& count = others[std::string(state_name(request.state))];
      count = count.get<int>() + 1;
    }
  }
  Json choices = Json::array();  // names: parameters may be files
  for (const std::string& policy : app.service.options().kv.policies)
    choices.push_back(policy.substr(0, policy.find(':')));
  Json ranks = {{"count", stats.ranks}, {"most_per_request", app.service.options().most_ranks}};
  if (!stats.lost_ranks.empty()) ranks["lost"] = stats.lost_ranks;
  const Json body = {{"model", app.names.front()},
                     {"context_tokens", app.info.context_tokens},
                     {"kv",
                      {{"codec", app.info.kv_codec},
                       {"policy", app.info.kv_policy},
                       {"choices", std::move(choices)},
                       {"retained", counted > 0 ? retained / counted : 1.0},
                       {"bytes_per_token", app.info.kv_bytes_per_token},
                       {"bytes_in_use", stats.kv_bytes_in_use},
                       {"budget_bytes", stats.kv_budget_bytes}}},
                     {"ranks", ranks},
                     {"prefix_cache",
                      {{"blocks", stats.prefix_blocks},
                       {"bytes", stats.prefix_bytes},
                       {"states", stats.prefix_states},
                       {"state_bytes", stats.prefix_state_bytes},
                       {"asked_tokens", stats.prompt_tokens},
                       {"found_tokens", stats.cached_tokens}}},
                     {"totals",
                      {{"tokens_read", stats.tokens_read},
                       {"tokens_generated", stats.tokens_sampled},
                       {"answered", stats.answered},
                       {"cancelled", stats.cancelled},
                       {"failed", stats.failed},
                       {"refused", stats.refused},
                       {"gave_way", stats.gave_way}}},
                     {"requests", std::move(own)},
                     {"others", std::move(others)}};
  call.reply->send(
      {200, json_text(body), "application/json", {{"X-Request-Id", call.id}, {"Cache-Control", "no-store"}}});
  return {};
}

}  // namespace godwit::server
