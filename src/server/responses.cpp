// POST /v1/responses: text in, text and calls of tools out. Nothing is stored.
#include <fmt/format.h>

#include "base/result.h"
#include "server/request_json.h"
#include "server/tools.h"

namespace godwit::server {
namespace {

// An answer is a list of items: messages and calls, one after another.
class ResponseForm final : public AnswerForm {
 public:
  ResponseForm(const App& app, const Call& call, const Plan& plan, const ToolUse& tools, const Json& echo)
      : stream_(plan.stream), id_(call.id) {
    const GenerateOptions& o = plan.options;
    response_ = {{"id", "resp_" + call.id},
                 {"object", "response"},
                 {"created_at", std::time(nullptr)},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"max_output_tokens", o.max_tokens > 0 ? Json(o.max_tokens) : Json()},
                 {"model", app.names.front()},
                 {"output", Json::array()},
                 {"previous_response_id", nullptr},
                 {"store", false},
                 {"temperature", o.sampling.temperature},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"top_p", o.sampling.top_p},
                 {"truncation", "disabled"},
                 {"usage", nullptr},
                 {"metadata", Json::object()}};
    response_.update(echo);
    if (tools.reads_calls()) parser_.emplace(app.engine.tool_parser(tools.tools));
  }

  std::string piece(size_t, const Piece& piece) override {
    begin();
    if (parser_) {
      take(parser_->push(piece.text));
    } else {
      say(piece.text);
    }
    return std::exchange(events_, {});
  }

  std::string answer_end(size_t, const ServiceAnswer& end) override {
    const bool complete = end.finish == FinishReason::kStop;
    begin();
    if (parser_) take(parser_->finish());
    response_["status"] = complete ? "completed" : "incomplete";
    if (!complete) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (response_["output"].empty() && !open_) open_message();
    close_message(response_["status"]);
    return std::exchange(events_, {});
  }

  std::string end(const Usage& usage) override {
    response_["usage"] = with_ranks({{"input_tokens", usage.prompt_tokens},
                                     {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                                     {"output_tokens", usage.completion_tokens},
                                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens}},
                                    usage.ranks);
    if (!stream_) return json_text(response_);
    event("response." + response_["status"].get<std::string>(), {{"response", response_}});
    return std::exchange(events_, {});
  }

 private:
  void begin() {
    if (std::exchange(begun_, true)) return;
    event("response.created", {{"response", response_}});
    event("response.in_progress", {{"response", response_}});
  }
  void event(const std::string& type, const Json& rest) {
    if (!stream_) return;
    Json body = {{"type", type}, {"sequence_number", sequence_++}};
    body.update(rest);
    events_ += sse(body, type);
  }
  size_t index() const { return response_["output"].size(); }  // of the item that is open or comes next
  std::string item_id(const char* kind) const {
    return index() == 0 ? fmt::format("{}_{}", kind, id_) : fmt::format("{}_{}_{}", kind, id_, index());
  }
  void add_item(Json item) {
    event("response.output_item.done", {{"output_index", index()}, {"item", item}});
    response_["output"].push_back(std::move(item));
  }

  void take(const ToolCallParser::Output& said) {
    say(said.content);
    for (const ToolCall& call : said.calls) {
      close_message("completed");
      add_call(call);
    }
  }

  // --- a message

  void say(const std::string& text) {
    if (text.empty()) return;
    if (!open_) open_message();
    text_ += text;
    event("response.output_text.delta", part_place({{"delta", text}, {"logprobs", Json::array()}}));
  }
  void open_message() {
    open_ = true;
    text_.clear();
    event("response.output_item.added", {{"output_index", index()}, {"item", message("in_progress", false)}});
    event("response.content_part.added", part_place({{"part", part("")}}));
  }
  void close_message(const std::string& status) {
    if (!std::exchange(open_, false)) return;
    event("response.output_text.done", part_place({{"text", text_}, {"logprobs", Json::array()}}));
    event("response.content_part.done", part_place({{"part", part(text_)}}));
    add_item(message(status, true));
  }
  Json part_place(const Json& rest) const {
    Json place = {{"item_id", item_id("msg")}, {"output_index", index()}, {"content_index", 0}};
    place.update(rest);
    return place;
  }
  static Json part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  Json message(const std::string& status, bool whole) const {
    return {{"id", item_id("msg")},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", whole ? Json::array({part(text_)}) : Json::array()}};
  }

  // --- a call, which comes whole

  void add_call(const ToolCall& call) {
    Json item = {{"id", item_id("fc")}, {"type", "function_call"}, {"status", "in_progress"},
                 {"call_id", call.id},  {"name", call.name},       {"arguments", ""}};
    event("response.output_item.added", {{"output_index", index()}, {"item", item}});
    for (const auto& [kind, key] : {std::pair("delta", "delta"), std::pair("done", "arguments")})
      event(fmt::format("response.function_call_arguments.{}", kind),
            {{"item_id", item["id"]}, {"output_index", index()}, {key, call.arguments}});
    item["status"] = "completed";
    item["arguments"] = call.arguments;
    add_item(std::move(item));
  }

  const bool stream_;
  const std::string id_;
  Json response_;
  std::string events_;                    // to be sent
  std::optional<ToolCallParser> parser_;  // where there are tools
  std::string text_;                      // of the message that is open
  bool open_ = false, begun_ = false;
  int sequence_ = 0;
};

// Messages, calls and their results.
ApiResult<void> read_item(const Fields& item, std::vector<ChatMessage>& messages) {
  std::string type = "message";
  GODWIT_TRY(item.read("type", type));
  if (type == "message") {
    GODWIT_ASSIGN(ChatMessage message, read_message(item));
    messages.push_back(std::move(message));
    return {};
  }
  if (type == "function_call") {
    ToolCall call;
    GODWIT_ASSIGN(call.id, item.text("call_id"));
    GODWIT_ASSIGN(call.name, item.text("name"));
    GODWIT_ASSIGN(call.arguments, read_arguments(item));
    if (messages.empty() || messages.back().role != "assistant") messages.push_back({"assistant", ""});
    messages.back().tool_calls.push_back(std::move(call));
    return {};
  }
  if (type == "function_call_output") {
    ChatMessage result{"tool", ""};
    GODWIT_ASSIGN(result.tool_call_id, item.text("call_id"));
    const nlohmann::json* output = item.find("output");
    if (output == nullptr) return bad_field(item.name("output"), fmt::format("'{}' is missing", item.name("output")));
    GODWIT_ASSIGN(result.content, read_content(*output, item.name("output")));
    messages.push_back(std::move(result));
    return {};
  }
  return bad_field(item.name("type"),
                   fmt::format("'{}' must be message, function_call or function_call_output, not '{}'",
                               item.name("type"), type.substr(0, 32)));
}

ApiResult<std::vector<ChatMessage>> read_input(const Fields& fields) {
  std::vector<ChatMessage> messages;
  std::string instructions;
  GODWIT_TRY(fields.read("instructions", instructions));
  if (!instructions.empty()) messages.push_back({"system", instructions});
  const nlohmann::json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({"user", input->get<std::string>()});
    return messages;
  }
  GODWIT_ASSIGN(const nlohmann::json* list, fields.array("input"));
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields item, Fields::of((*list)[i], fmt::format("input[{}]", i)));
    GODWIT_TRY(read_item(item, messages));
  }
  return messages;
}

}  // namespace

ApiResult<void> responses(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  GODWIT_TRY(fields.refuse("previous_response_id", "responses are not stored; send the whole conversation"));
  GODWIT_TRY(fields.refuse("conversation", "conversations are not stored; send the whole conversation"));
  GODWIT_TRY(fields.refuse("background", "responses are not computed in the background"));
  GODWIT_TRY(fields.refuse("prompt", "there are no stored prompts; send instructions and input"));
  GODWIT_TRY(fields.refuse("truncation", "nothing is cut from a conversation", "disabled"));
  GODWIT_TRY(fields.refuse("max_tool_calls", "tools are called by the client, who may count"));
  GODWIT_TRY(fields.refuse("top_logprobs", "responses have no log-probabilities; chat completions do", 0));
  GODWIT_TRY(fields.refuse("n", "a response has one answer", 1));
  Plan plan;
  GODWIT_TRY(read_plan(app, fields, {.max_tokens = {"max_output_tokens"}}, plan));
  if (const nlohmann::json* text = fields.find("text")) {
    GODWIT_ASSIGN(const Fields inner, Fields::of(*text, "text"));
    GODWIT_TRY(read_format(app, *call.request, inner, "format", plan.options));
  }
  GODWIT_ASSIGN(auto messages, read_input(fields));
  GODWIT_ASSIGN(const ToolUse tools, read_response_tools(app, *call.request, fields, plan.options));
  GODWIT_ASSIGN(auto prompt, chat_prompt(app, std::move(messages), tools.tools, tools.in_prompt));
  plan.prompts.push_back(std::move(prompt));
  Json echo = {
      {"instructions", nullptr}, {"parallel_tool_calls", true}, {"tool_choice", "auto"}, {"tools", Json::array()}};
  for (auto& item : echo.items())
    if (fields.has(item.key())) item.value() = *fields.find(item.key());
  auto form = std::make_unique<ResponseForm>(app, call, plan, tools, echo);
  return generate(app, call, std::move(plan), std::move(form));
}

}  // namespace godwit::server
