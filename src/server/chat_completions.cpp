// POST /v1/chat/completions
#include "base/result.h"
#include "server/openai.h"
#include "server/request_json.h"
#include "server/tools.h"

namespace godwit::server {
namespace {

class ChatForm final : public AnswerForm {
 public:
  ChatForm(const App& app, const Call& call, const Plan& plan, const ToolUse& tools, bool usage)
      : stream_(plan.stream),
        usage_(usage),
        logprobs_(plan.options.sampling.logprobs >= 0),
        format_{&app.engine, plan.options.ignore_eos},
        choices_(static_cast<size_t>(plan.choices)),
        head_{{"id", "chatcmpl-" + call.id},
              {"object", plan.stream ? "chat.completion.chunk" : "chat.completion"},
              {"created", std::time(nullptr)},
              {"model", app.names.front()}} {
    if (tools.reads_calls())
      for (Choice& choice : choices_) choice.parser.emplace(app.engine.tool_parser(tools.tools));
  }

  std::string piece(size_t i, const Piece& piece) override {
    Choice& choice = choices_[i];
    const bool counts = logprobs_ && format_.counts(piece);
    ToolCallParser::Output said{piece.text, {}};
    if (choice.parser) said = choice.parser->push(piece.text);
    if (!stream_) {
      if (counts) choice.logprobs.push_back(format_.chat(piece));
      keep(choice, said);
      return {};
    }
    std::string events = begin(i);
    if (counts || !said.content.empty()) {
      Json logprobs;
      if (counts) logprobs = {{"content", Json::array({format_.chat(piece)})}, {"refusal", nullptr}};
      events += chunk(i, {{"content", said.content}}, std::move(logprobs), nullptr);
    }
    return events + call_chunks(i, said.calls);
  }

  std::string progress(size_t i, const RequestStatus& status) override {
    Json event = head_;
    event["choices"] = Json::array();
    event["progress"] = progress_json(status);
    event["progress"]["index"] = i;
    return sse(event);
  }

  std::string answer_end(size_t i, const ServiceAnswer& end) override {
    Choice& choice = choices_[i];
    ToolCallParser::Output rest;
    if (choice.parser) rest = choice.parser->finish();
    std::string events;
    if (stream_) {
      events = begin(i);
      if (!rest.content.empty()) events += chunk(i, {{"content", rest.content}}, nullptr, nullptr);
      events += call_chunks(i, rest.calls);
    } else {
      keep(choice, rest);
    }
    choice.finish = openai_finish(end.finish);
    if (choice.called > 0 && end.finish == FinishReason::kStop) choice.finish = "tool_calls";
    return stream_ ? events + chunk(i, Json::object(), nullptr, choice.finish) : events;
  }

  std::string end(const Usage& usage) override {
    Json body = head_;
    if (stream_) {
      std::string events;
      if (usage_) {
        body["choices"] = Json::array();
        body["usage"] = usage_json(usage);
        events = sse(body);
      }
      return events + "data: [DONE]\n\n";
    }
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      Json logprobs;
      if (logprobs_) logprobs = {{"content", std::move(choice.logprobs)}, {"refusal", nullptr}};
      Json message = {{"role", "assistant"}, {"content", std::move(choice.text)}, {"refusal", nullptr}};
      if (choice.called > 0) {
        if (message["content"].get_ref<const std::string&>().empty()) message["content"] = nullptr;
        message["tool_calls"] = std::move(choice.calls);
      }
      body["choices"].push_back({{"index", i},
                                 {"message", std::move(message)},
                                 {"logprobs", std::move(logprobs)},
                                 {"finish_reason", choice.finish}});
    }
    body["usage"] = usage_json(usage);
    return json_text(body);
  }

 private:
  struct Choice {
    bool begun = false;
    std::string text, finish;
    Json logprobs = Json::array(), calls = Json::array();
    std::optional<ToolCallParser> parser;  // where there are tools
    size_t called = 0;
  };

  static Json call_json(const ToolCall& call) {
    return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  }
  static void keep(Choice& choice, const ToolCallParser::Output& said) {
    choice.text += said.content;
    for (const ToolCall& call : said.calls) choice.calls.push_back(call_json(call));
    choice.called += said.calls.size();
  }
  // A call comes whole.
  std::string call_chunks(size_t i, const std::vector<ToolCall>& calls) {
    std::string events;
    for (const ToolCall& call : calls) {
      Json entry = {{"index", choices_[i].called++}};
      entry.update(call_json(call));
      events += chunk(i, {{"tool_calls", Json::array({std::move(entry)})}}, nullptr, nullptr);
    }
    return events;
  }

  // The role comes first, once.
  std::string begin(size_t i) {
    if (std::exchange(choices_[i].begun, true)) return {};
    return chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  std::string chunk(size_t i, Json delta, Json logprobs, Json finish) const {
    Json event = head_;
    event["choices"] = Json::array({{{"index", i},
                                     {"delta", std::move(delta)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", std::move(finish)}}});
    if (usage_) event["usage"] = nullptr;
    return sse(event);
  }

  const bool stream_, usage_, logprobs_;
  const LogprobFormat format_;
  std::vector<Choice> choices_;
  const Json head_;
};

}  // namespace

ApiResult<void> chat_completions(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  Plan plan;
  GODWIT_TRY(read_plan(app, fields, {.max_tokens = {"max_completion_tokens", "max_tokens"}}, plan));
  bool logprobs = false;
  int top = 0;
  GODWIT_TRY(fields.read("logprobs", logprobs));
  GODWIT_TRY(fields.read("top_logprobs", top, 0, 20));
  if (top > 0 && !logprobs) return bad_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (logprobs) plan.options.sampling.logprobs = top;
  GODWIT_ASSIGN(const bool usage, read_stream_options(fields, plan));
  GODWIT_TRY(read_format(app, *call.request, fields, "response_format", plan.options));
  GODWIT_ASSIGN(const auto messages, read_messages(fields, "messages"));
  GODWIT_ASSIGN(const ToolUse tools, read_tools(app, *call.request, fields, plan.options));
  GODWIT_ASSIGN(auto prompt, chat_prompt(app, messages, tools.tools, tools.in_prompt));
  plan.prompts.push_back(std::move(prompt));
  auto form = std::make_unique<ChatForm>(app, call, plan, tools, usage);
  return generate(app, call, std::move(plan), std::move(form));
}

}  // namespace godwit::server
