// POST /v1/responses: text in, text out. Nothing is stored.
#include <fmt/format.h>

#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

class ResponseForm final : public AnswerForm {
 public:
  ResponseForm(const App& app, const Call& call, const Plan& plan, Json instructions)
      : stream_(plan.stream), item_id_("msg_" + call.id) {
    const GenerateOptions& o = plan.options;
    response_ = {{"id", "resp_" + call.id},
                 {"object", "response"},
                 {"created_at", std::time(nullptr)},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", std::move(instructions)},
                 {"max_output_tokens", o.max_tokens > 0 ? Json(o.max_tokens) : Json()},
                 {"model", app.names.front()},
                 {"output", Json::array()},
                 {"parallel_tool_calls", true},
                 {"previous_response_id", nullptr},
                 {"store", false},
                 {"temperature", o.sampling.temperature},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"top_p", o.sampling.top_p},
                 {"truncation", "disabled"},
                 {"usage", nullptr},
                 {"metadata", Json::object()}};
  }

  std::string piece(size_t, const Piece& piece) override {
    text_ += piece.text;
    if (!stream_) return {};
    std::string events = begin();
    if (piece.text.empty()) return events;
    return events +
           event("response.output_text.delta", part_place({{"delta", piece.text}, {"logprobs", Json::array()}}));
  }

  std::string answer_end(size_t, const ServiceAnswer& end) override {
    const bool complete = end.finish == FinishReason::kStop;
    response_["status"] = complete ? "completed" : "incomplete";
    if (!complete) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    return stream_ ? begin() : std::string();
  }

  std::string end(const Usage& usage) override {
    const std::string status = response_["status"];
    response_["output"].push_back(item(status, Json::array({part(text_)})));
    response_["usage"] = {{"input_tokens", usage.prompt_tokens},
                          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                          {"output_tokens", usage.completion_tokens},
                          {"output_tokens_details", {{"reasoning_tokens", 0}}},
                          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    if (!stream_) return json_text(response_);
    std::string events = event("response.output_text.done", part_place({{"text", text_}, {"logprobs", Json::array()}}));
    events += event("response.content_part.done", part_place({{"part", part(text_)}}));
    events += event("response.output_item.done", {{"output_index", 0}, {"item", response_["output"][0]}});
    return events += event("response." + status, {{"response", response_}});
  }

 private:
  std::string begin() {
    if (std::exchange(begun_, true)) return {};
    std::string events = event("response.created", {{"response", response_}});
    events += event("response.in_progress", {{"response", response_}});
    events += event("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", Json::array())}});
    return events += event("response.content_part.added", part_place({{"part", part("")}}));
  }
  std::string event(const std::string& type, const Json& rest) {
    Json body = {{"type", type}, {"sequence_number", sequence_++}};
    body.update(rest);
    return sse(body, type);
  }
  Json part_place(const Json& rest) const {
    Json place = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    place.update(rest);
    return place;
  }
  static Json part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }
  Json item(std::string_view status, Json content) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  const bool stream_;
  const std::string item_id_;
  Json response_;
  std::string text_;
  bool begun_ = false;
  int sequence_ = 0;
};

}  // namespace

ApiResult<void> responses(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  GODWIT_TRY(fields.refuse("previous_response_id", "responses are not stored; send the whole conversation"));
  GODWIT_TRY(fields.refuse("conversation", "conversations are not stored; send the whole conversation"));
  GODWIT_TRY(fields.refuse("background", "responses are not computed in the background"));
  GODWIT_TRY(fields.refuse("n", "a response has one answer", 1));
  Plan plan;
  GODWIT_TRY(read_plan(app, fields, {.max_tokens = {"max_output_tokens"}}, plan));
  if (const nlohmann::json* text = fields.find("text")) {
    GODWIT_ASSIGN(const Fields inner, Fields::of(*text, "text"));
    GODWIT_TRY(read_format(app, *call.request, inner, "format", plan.options));
  }
  std::string instructions;
  GODWIT_TRY(fields.read("instructions", instructions));
  std::vector<ChatMessage> messages;
  if (!instructions.empty()) messages.push_back({"system", instructions});
  const nlohmann::json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({"user", input->get<std::string>()});
  } else {
    GODWIT_ASSIGN(const auto list, read_messages(fields, "input"));
    messages.insert(messages.end(), list.begin(), list.end());
  }
  GODWIT_ASSIGN(auto prompt, chat_prompt(app, messages));
  plan.prompts.push_back(std::move(prompt));
  auto form = std::make_unique<ResponseForm>(app, call, plan, instructions.empty() ? Json() : Json(instructions));
  return generate(app, call, std::move(plan), std::move(form));
}

}  // namespace godwit::server
