// GET /v1/models, POST /tokenize, POST /detokenize
#include <fmt/format.h>

#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

void send_json(const Call& call, const Json& body) {
  call.reply->send({200, json_text(body), "application/json", {{"X-Request-Id", call.id}}});
}

Json model_json(const App& app, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", app.created},
          {"owned_by", "godwit"},
          {"max_model_len", app.info.context_tokens}};
}

}  // namespace

ApiResult<void> models(const App& app, const Call& call) {
  Json list = Json::array();
  for (const std::string& name : app.names) list.push_back(model_json(app, name));
  send_json(call, {{"object", "list"}, {"data", std::move(list)}});
  return {};
}

ApiResult<void> model(const App& app, const Call& call) {
  const nlohmann::json asked = {{"model", call.request->path.substr(std::string_view("/v1/models/").size())}};
  GODWIT_ASSIGN(const Fields fields, Fields::of(asked));
  GODWIT_TRY(check_model(app, fields));
  send_json(call, model_json(app, asked["model"]));
  return {};
}

ApiResult<void> tokenize(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  std::vector<TokenId> tokens;
  if (fields.has("messages")) {
    GODWIT_ASSIGN(const auto messages, read_messages(fields, "messages"));
    GODWIT_ASSIGN(tokens, chat_prompt(app, messages));
  } else {
    GODWIT_ASSIGN(const std::string text, fields.text("prompt"));
    Engine::TokenizeOptions options;
    GODWIT_TRY(fields.read("add_special_tokens", options.add_bos));
    GODWIT_TRY(fields.read("parse_special", options.parse_special));
    auto encoded = app.engine.tokenize(text, options);
    if (!encoded) return tl::unexpected(to_api_error(encoded.error()));
    tokens = std::move(*encoded);
  }
  send_json(call, {{"count", tokens.size()}, {"max_model_len", app.info.context_tokens}, {"tokens", tokens}});
  return {};
}

ApiResult<void> detokenize(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  std::vector<TokenId> tokens;
  if (!fields.has("tokens")) return bad_field("tokens", "'tokens' is missing; it must be an array of token ids");
  GODWIT_TRY(fields.read("tokens", tokens));
  for (TokenId id : tokens)
    if (id >= app.info.vocab_size)
      return bad_field("tokens",
                       fmt::format("token {} is not in the vocabulary of {} tokens", id, app.info.vocab_size));
  send_json(call, {{"prompt", app.engine.detokenize(tokens, true)}});
  return {};
}

}  // namespace godwit::server
