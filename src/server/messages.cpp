// Anthropic's POST /v1/messages and /v1/messages/count_tokens
#include <fmt/format.h>

#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

Json anthropic_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

class MessageForm final : public AnswerForm {
 public:
  MessageForm(const App& app, const Call& call, const Plan& plan)
      : stream_(plan.stream),
        prompt_tokens_(static_cast<int>(plan.prompts.front().size())),
        stops_(plan.options.stop),
        message_{{"id", "msg_" + call.id},     {"type", "message"},        {"role", "assistant"},
                 {"model", app.names.front()}, {"content", Json::array()}, {"stop_reason", nullptr},
                 {"stop_sequence", nullptr}} {}

  std::string piece(size_t, const Piece& piece) override {
    if (!stream_) {
      text_ += piece.text;
      return {};
    }
    std::string events = begin();
    if (piece.text.empty()) return events;
    return events +
           event("content_block_delta", {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", piece.text}}}});
  }

  std::string answer_end(size_t, const ServiceAnswer& end) override {
    if (end.stop >= 0) message_["stop_sequence"] = stops_[static_cast<size_t>(end.stop)];
    message_["stop_reason"] = end.stop >= 0                       ? "stop_sequence"
                              : end.finish == FinishReason::kStop ? "end_turn"
                                                                  : "max_tokens";
    return stream_ ? begin() : std::string();
  }

  std::string end(const Usage& usage) override {
    if (!stream_) {
      message_["content"].push_back({{"type", "text"}, {"text", std::move(text_)}});
      message_["usage"] = anthropic_usage(usage);
      return json_text(message_);
    }
    return event("content_block_stop", {{"index", 0}}) +
           event("message_delta",
                 {{"delta", {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
                  {"usage", anthropic_usage(usage)}}) +
           event("message_stop", Json::object());
  }

 private:
  std::string begin() {
    if (std::exchange(begun_, true)) return {};
    Json message = message_;
    message["stop_reason"] = message["stop_sequence"] = nullptr;
    message["usage"] = anthropic_usage({.prompt_tokens = prompt_tokens_});  // what was cached is known at the end
    return event("message_start", {{"message", std::move(message)}}) +
           event("content_block_start", {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  static std::string event(const std::string& type, Json rest) {
    Json body = {{"type", type}};
    body.update(rest);
    return sse(body, type);
  }

  const bool stream_;
  const int prompt_tokens_;
  const std::vector<std::string> stops_;
  Json message_;
  std::string text_;
  bool begun_ = false;
};

ApiResult<std::vector<TokenId>> read_prompt(const App& app, const Fields& fields) {
  std::vector<ChatMessage> messages;
  if (const nlohmann::json* system = fields.find("system")) {
    GODWIT_ASSIGN(std::string text, read_content(*system, "system"));
    messages.push_back({"system", std::move(text)});
  }
  GODWIT_ASSIGN(const auto list, read_messages(fields, "messages"));
  messages.insert(messages.end(), list.begin(), list.end());
  return chat_prompt(app, messages);
}

}  // namespace

ApiResult<void> messages(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  if (!fields.has("max_tokens")) return bad_field("max_tokens", "'max_tokens' is missing; it must be an integer");
  GODWIT_TRY(fields.refuse("n", "a message has one answer", 1));
  Plan plan;
  GODWIT_TRY(read_plan(app, fields, {.stop = "stop_sequences"}, plan));
  GODWIT_TRY(read_format(app, *call.request, fields, "output_format", plan.options));
  if (const nlohmann::json* output = fields.find("output_config")) {
    GODWIT_ASSIGN(const Fields inner, Fields::of(*output, "output_config"));
    GODWIT_TRY(read_format(app, *call.request, inner, "format", plan.options));
  }
  GODWIT_ASSIGN(auto prompt, read_prompt(app, fields));
  plan.prompts.push_back(std::move(prompt));
  auto form = std::make_unique<MessageForm>(app, call, plan);
  return generate(app, call, std::move(plan), std::move(form));
}

ApiResult<void> count_message_tokens(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  GODWIT_ASSIGN(const auto prompt, read_prompt(app, fields));
  call.reply->send({200, json_text({{"input_tokens", prompt.size()}}), "application/json", {{"request-id", call.id}}});
  return {};
}

}  // namespace godwit::server
