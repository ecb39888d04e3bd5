// Anthropic's POST /v1/messages and /v1/messages/count_tokens
#include <fmt/format.h>

#include "base/result.h"
#include "server/request_json.h"
#include "server/tools.h"

namespace godwit::server {
namespace {

Json anthropic_usage(const Usage& usage) {
  return with_ranks({{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                     {"cache_creation_input_tokens", 0},
                     {"cache_read_input_tokens", usage.cached_tokens},
                     {"output_tokens", usage.completion_tokens}},
                    usage.ranks);
}

class MessageForm final : public AnswerForm {
 public:
  MessageForm(const App& app, const Call& call, const Plan& plan, const ToolUse& tools)
      : stream_(plan.stream),
        prompt_tokens_(static_cast<int>(plan.prompts.front().size())),
        stops_(plan.options.stop),
        message_{{"id", "msg_" + call.id},     {"type", "message"},        {"role", "assistant"},
                 {"model", app.names.front()}, {"content", Json::array()}, {"stop_reason", nullptr},
                 {"stop_sequence", nullptr}} {
    if (tools.reads_calls()) parser_.emplace(app.engine.tool_parser(tools.tools));
  }

  std::string piece(size_t, const Piece& piece) override {
    return say(parser_ ? parser_->push(piece.text) : ToolCallParser::Output{piece.text, {}});
  }

  std::string answer_end(size_t, const ServiceAnswer& end) override {
    std::string events = say(parser_ ? parser_->finish() : ToolCallParser::Output{});
    if (end.stop >= 0) message_["stop_sequence"] = stops_[static_cast<size_t>(end.stop)];
    message_["stop_reason"] = end.stop >= 0                       ? "stop_sequence"
                              : end.finish != FinishReason::kStop ? "max_tokens"
                              : called_                           ? "tool_use"
                                                                  : "end_turn";
    return events;
  }

  std::string end(const Usage& usage) override {
    std::string events = close_text();
    if (!stream_) {
      message_["usage"] = anthropic_usage(usage);
      return json_text(message_);
    }
    events +=
        event("message_delta",
              {{"delta", {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
               {"usage", anthropic_usage(usage)}});
    return events += event("message_stop", Json::object());
  }

 private:
  // Text goes on in one block until a call comes; a call is a block of its own.
  std::string say(const ToolCallParser::Output& said) {
    std::string events = begin();
    if (!said.content.empty()) {
      events += open_text();
      text_ += said.content;
      events += event("content_block_delta",
                      {{"index", blocks_}, {"delta", {{"type", "text_delta"}, {"text", said.content}}}});
    }
    for (const ToolCall& call : said.calls) {
      called_ = true;
      events += close_text();
      Json block = {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}};
      events += event("content_block_start", {{"index", blocks_}, {"content_block", block}});
      events +=
          event("content_block_delta",
                {{"index", blocks_}, {"delta", {{"type", "input_json_delta"}, {"partial_json", call.arguments}}}});
      events += event("content_block_stop", {{"index", blocks_++}});
      block["input"] = Json::parse(call.arguments);  // the parser told it because it is an object
      message_["content"].push_back(std::move(block));
    }
    return events;
  }
  std::string begin() {
    if (std::exchange(begun_, true)) return {};
    Json message = message_;
    message["usage"] = anthropic_usage({.prompt_tokens = prompt_tokens_});  // what was cached is known at the end
    return event("message_start", {{"message", std::move(message)}});
  }
  std::string open_text() {
    if (std::exchange(text_open_, true)) return {};
    return event("content_block_start", {{"index", blocks_}, {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  std::string close_text() {
    if (!std::exchange(text_open_, false)) return {};
    message_["content"].push_back({{"type", "text"}, {"text", std::exchange(text_, {})}});
    return event("content_block_stop", {{"index", blocks_++}});
  }
  std::string event(const std::string& type, const Json& rest) const {
    if (!stream_) return {};
    Json body = {{"type", type}};
    body.update(rest);
    return sse(body, type);
  }

  const bool stream_;
  const int prompt_tokens_;
  const std::vector<std::string> stops_;
  Json message_;  // its content: blocks that are complete
  std::optional<ToolCallParser> parser_;
  std::string text_;  // of the open block
  int blocks_ = 0;
  bool begun_ = false, text_open_ = false, called_ = false;
};

// A message's blocks: text, calls of tools, and their results, which are messages of their own to the engine.
ApiResult<void> read_blocks(const Fields& message, const std::string& role, std::vector<ChatMessage>& messages) {
  const std::string name = message.name("content");
  const nlohmann::json* content = message.find("content");
  if (content == nullptr) return bad_field(name, fmt::format("'{}' is missing", name));
  ChatMessage said{.role = role, .content = {}};
  if (!content->is_array()) {
    GODWIT_ASSIGN(said.content, read_content(*content, name));
    messages.push_back(std::move(said));
    return {};
  }
  bool results = false;
  for (size_t i = 0; i < content->size(); ++i) {
    GODWIT_ASSIGN(const Fields block, Fields::of((*content)[i], fmt::format("{}[{}]", name, i)));
    GODWIT_ASSIGN(const std::string type, block.text("type"));
    if (type == "tool_use" && role == "assistant") {
      ToolCall& call = said.tool_calls.emplace_back();
      GODWIT_ASSIGN(call.id, block.text("id"));
      GODWIT_ASSIGN(call.name, block.text("name"));
      const nlohmann::json* input = block.find("input");
      if (input == nullptr || !input->is_object())
        return bad_field(block.name("input"), fmt::format("'{}' must be an object", block.name("input")));
      call.arguments = input->dump();
    } else if (type == "tool_result" && role == "user") {
      ChatMessage result{.role = "tool", .content = {}};
      GODWIT_ASSIGN(result.tool_call_id, block.text("tool_use_id"));
      if (const nlohmann::json* inner = block.find("content")) {
        GODWIT_ASSIGN(result.content, read_content(*inner, block.name("content")));
      }
      messages.push_back(std::move(result));
      results = true;
    } else {
      GODWIT_ASSIGN(const std::string text, read_content(nlohmann::json::array({(*content)[i]}), name));
      said.content += text;
    }
  }
  if (!results || !said.content.empty()) messages.push_back(std::move(said));
  return {};
}

ApiResult<std::vector<ChatMessage>> read_conversation(const Fields& fields) {
  std::vector<ChatMessage> messages;
  if (const nlohmann::json* system = fields.find("system")) {
    GODWIT_ASSIGN(std::string text, read_content(*system, "system"));
    messages.push_back({"system", std::move(text)});
  }
  GODWIT_ASSIGN(const nlohmann::json* list, fields.array("messages"));
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields message, Fields::of((*list)[i], fmt::format("messages[{}]", i)));
    GODWIT_ASSIGN(const std::string role, message.text("role"));
    if (role != "user" && role != "assistant")
      return bad_field(message.name("role"), fmt::format("'{}' must be user or assistant", message.name("role")));
    GODWIT_TRY(read_blocks(message, role, messages));
  }
  return messages;
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
  GODWIT_ASSIGN(const ToolUse tools, read_anthropic_tools(app, *call.request, fields, plan.options));
  GODWIT_ASSIGN(auto conversation, read_conversation(fields));
  GODWIT_ASSIGN(auto prompt, chat_prompt(app, std::move(conversation), tools.tools, tools.in_prompt));
  plan.prompts.push_back(std::move(prompt));
  auto form = std::make_unique<MessageForm>(app, call, plan, tools);
  return generate(app, call, std::move(plan), std::move(form));
}

ApiResult<void> count_message_tokens(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  GenerateOptions unused;
  GODWIT_ASSIGN(const ToolUse tools, read_anthropic_tools(app, *call.request, fields, unused));
  GODWIT_ASSIGN(auto conversation, read_conversation(fields));
  GODWIT_ASSIGN(const auto prompt, chat_prompt(app, std::move(conversation), tools.tools, tools.in_prompt));
  call.reply->send({200, json_text({{"input_tokens", prompt.size()}}), "application/json", {{"request-id", call.id}}});
  return {};
}

}  // namespace godwit::server
