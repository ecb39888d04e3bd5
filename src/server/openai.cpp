#include "server/openai.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/result.h"
#include "server/request_json.h"

namespace godwit::server {

Json usage_json(const Usage& usage) {
  return with_ranks({{"prompt_tokens", usage.prompt_tokens},
                     {"completion_tokens", usage.completion_tokens},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                     {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}},
                    usage.ranks);
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

ApiResult<std::string> read_arguments(const Fields& call) {
  GODWIT_ASSIGN(std::string text, call.text("arguments"));
  if (const auto parsed = parse_json(text, "arguments"); !parsed || !parsed->is_object())
    return bad_field(call.name("arguments"), fmt::format("'{}' must be a JSON object as text", call.name("arguments")));
  return text;
}

namespace {

// The calls that an assistant made in an earlier turn.
ApiResult<void> read_calls(const Fields& message, std::vector<ToolCall>& calls) {
  if (!message.has("tool_calls")) return {};
  GODWIT_ASSIGN(const nlohmann::json* list, message.array("tool_calls"));
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields entry, Fields::of((*list)[i], fmt::format("{}[{}]", message.name("tool_calls"), i)));
    const nlohmann::json* function = entry.find("function");
    if (function == nullptr)
      return bad_field(entry.name("function"), fmt::format("'{}' is missing", entry.name("function")));
    GODWIT_ASSIGN(const Fields inner, Fields::of(*function, entry.name("function")));
    ToolCall& call = calls.emplace_back();
    GODWIT_ASSIGN(call.id, entry.text("id"));
    GODWIT_ASSIGN(call.name, inner.text("name"));
    GODWIT_ASSIGN(call.arguments, read_arguments(inner));
  }
  return {};
}

}  // namespace

ApiResult<bool> read_stream_options(const Fields& fields, Plan& plan) {
  const nlohmann::json* options = fields.find("stream_options");
  if (options == nullptr) return false;
  if (!plan.stream) return bad_field("stream_options", "'stream_options' needs 'stream': true");
  GODWIT_ASSIGN(const Fields inner, Fields::of(*options, "stream_options"));
  bool usage = false;
  GODWIT_TRY(inner.read("include_usage", usage));
  GODWIT_TRY(inner.read("include_progress", plan.progress));
  return usage;
}

ApiResult<ChatMessage> read_message(const Fields& message) {
  GODWIT_ASSIGN(std::string role, message.text("role"));
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return bad_field(message.name("role"),
                     fmt::format("'{}' must be system, developer, user, assistant or tool, not '{}'",
                                 message.name("role"), role.substr(0, 32)));
  ChatMessage read;
  if (role == "assistant") GODWIT_TRY(read_calls(message, read.tool_calls));
  if (role == "tool") {
    GODWIT_ASSIGN(read.tool_call_id, message.text("tool_call_id"));
  }
  GODWIT_TRY(message.read("name", read.name));
  read.role = std::move(role);
  const nlohmann::json* content = message.find("content");
  if (content == nullptr && read.tool_calls.empty())
    return bad_field(message.name("content"), fmt::format("'{}' is missing", message.name("content")));
  if (content != nullptr) {
    GODWIT_ASSIGN(read.content, read_content(*content, message.name("content")));
  }
  return read;
}

ApiResult<std::vector<ChatMessage>> read_messages(const Fields& fields, std::string_view key) {
  GODWIT_ASSIGN(const nlohmann::json* list, fields.array(key));
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields message, Fields::of((*list)[i], fmt::format("{}[{}]", fields.name(key), i)));
    GODWIT_ASSIGN(ChatMessage read, read_message(message));
    messages.push_back(std::move(read));
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

ApiResult<std::vector<TokenId>> chat_prompt(const App& app, std::vector<ChatMessage> messages, std::vector<Tool> tools,
                                            bool tools_in_prompt) {
  auto tokens = app.engine.chat_prompt(
      ChatRequest{.messages = std::move(messages), .tools = std::move(tools), .tools_in_prompt = tools_in_prompt});
  if (tokens) return std::move(*tokens);
  ApiError error = to_api_error(tokens.error());
  error.status = 400;  // whatever it is, it is in the conversation
  return tl::unexpected(std::move(error));
}

}  // namespace godwit::server
