#include "server/openai.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/result.h"

namespace godwit::server {

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

std::string_view openai_finish(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

bool LogprobFormat::counts(const Piece& piece) const {
  if (!piece.is_new) return false;
  const auto ends = engine->end_tokens();
  return ignore_eos || std::find(ends.begin(), ends.end(), piece.id) == ends.end();
}

double LogprobFormat::number(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);
}

Json LogprobFormat::chat(const Piece& piece) const {
  const auto one = [&](TokenId id, float logprob) {
    Json bytes = Json::array();
    for (char c : engine->token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
    return Json{{"token", token(id)}, {"logprob", number(logprob)}, {"bytes", std::move(bytes)}};
  };
  Json entry = one(piece.id, piece.logprob);
  entry["top_logprobs"] = Json::array();
  for (const TokenLogprob& other : piece.top) entry["top_logprobs"].push_back(one(other.id, other.logprob));
  return entry;
}

ApiResult<std::string> read_content(const nlohmann::json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return bad_field(name, fmt::format("'{}' must be a string or an array of parts", name));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    GODWIT_ASSIGN(const Fields part, Fields::of(content[i], fmt::format("{}[{}]", name, i)));
    GODWIT_ASSIGN(const std::string type, part.text("type"));
    if (type != "text" && type != "input_text" && type != "output_text")
      return bad_field(part.name("type"), fmt::format("'{}': parts of type '{}' are not understood; only text is",
                                                      part.name("type"), type.substr(0, 32)));
    GODWIT_ASSIGN(const std::string piece, part.text("text"));
    text += piece;
  }
  return text;
}

ApiResult<std::vector<ChatMessage>> read_messages(const Fields& fields, std::string_view key) {
  GODWIT_ASSIGN(const nlohmann::json* list, fields.array(key));
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields message, Fields::of((*list)[i], fmt::format("{}[{}]", fields.name(key), i)));
    GODWIT_ASSIGN(std::string role, message.text("role"));
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      return bad_field(message.name("role"), fmt::format("'{}' must be system, developer, user or assistant, not '{}'",
                                                         message.name("role"), role.substr(0, 32)));
    const nlohmann::json* content = message.find("content");
    if (content == nullptr)
      return bad_field(message.name("content"), fmt::format("'{}' is missing", message.name("content")));
    GODWIT_ASSIGN(std::string text, read_content(*content, message.name("content")));
    messages.push_back({std::move(role), std::move(text)});
  }
  return messages;
}

ApiResult<void> read_prompts(const App& app, const Fields& fields, std::string_view key, Plan& plan) {
  const nlohmann::json* prompt = fields.find(key);
  const std::string name = fields.name(key);
  if (prompt == nullptr) return bad_field(name, fmt::format("'{}' is missing", name));
  const bool many = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  const size_t count = many ? prompt->size() : 1;
  const int most = plan.embed ? app.options.limits.embeddings : app.options.limits.choices;
  if (count * static_cast<size_t>(plan.choices) > static_cast<size_t>(most))
    return bad_field(name, fmt::format("'{}': {} texts with {} answers each are more than {} answers", name, count,
                                       plan.choices, most));
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& one = many ? (*prompt)[i] : *prompt;
    std::vector<TokenId> tokens;
    if (one.is_string()) {
      auto encoded = app.engine.tokenize(one.get_ref<const std::string&>());
      if (!encoded) return tl::unexpected(to_api_error(encoded.error()));
      tokens = std::move(*encoded);
    } else {
      const nlohmann::json holder = {{name, one}};
      GODWIT_ASSIGN(const Fields inner, Fields::of(holder));
      GODWIT_TRY(inner.read(name, tokens));
    }
    if (tokens.empty()) return bad_field(name, fmt::format("'{}' is empty", name));
    plan.prompts.push_back(std::move(tokens));
  }
  return {};
}

ApiResult<std::vector<TokenId>> chat_prompt(const App& app, const std::vector<ChatMessage>& messages) {
  auto tokens = app.engine.chat_tokens(messages);
  if (!tokens) return tl::unexpected(to_api_error(tokens.error()));
  return std::move(*tokens);
}

}  // namespace godwit::server
