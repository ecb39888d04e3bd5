// POST /v1/completions
#include <algorithm>

#include <fmt/format.h>

#include "base/result.h"
#include "server/openai.h"

namespace godwit::server {
namespace {

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

class CompletionForm final : public AnswerForm {
 public:
  CompletionForm(const App& app, const Call& call, const Plan& plan, bool usage)
      : stream_(plan.stream),
        usage_(usage),
        logprobs_(plan.options.sampling.logprobs >= 0),
        format_{&app.engine, plan.options.ignore_eos},
        choices_(plan.prompts.size() * static_cast<size_t>(plan.choices)),
        head_{{"id", "cmpl-" + call.id},
              {"object", "text_completion"},
              {"created", std::time(nullptr)},
              {"model", app.names.front()}} {}

  std::string piece(size_t i, const Piece& piece) override {
    Choice& choice = choices_[i];
    const bool counts = logprobs_ && format_.counts(piece);
    if (counts) add_logprobs(choice, piece);
    choice.offset += characters(piece.text);
    if (!stream_) {
      choice.text += piece.text;
      return {};
    }
    if (piece.text.empty() && !counts) return {};
    Json logprobs = counts ? std::exchange(choice.logprobs, empty_logprobs()) : Json();
    return chunk(i, piece.text, std::move(logprobs), nullptr);
  }

  std::string answer_end(size_t i, const ServiceAnswer& end) override {
    choices_[i].finish = openai_finish(end.finish);
    return stream_ ? chunk(i, "", nullptr, choices_[i].finish) : std::string();
  }

  std::string end(const Usage& usage) override {
    Json body = head_;
    body["choices"] = Json::array();
    if (stream_ && !usage_) return "data: [DONE]\n\n";
    if (!stream_)
      for (size_t i = 0; i < choices_.size(); ++i) {
        Choice& c = choices_[i];
        body["choices"].push_back({{"index", i},
                                   {"text", std::move(c.text)},
                                   {"logprobs", logprobs_ ? std::move(c.logprobs) : Json()},
                                   {"finish_reason", c.finish}});
      }
    body["usage"] = usage_json(usage);
    return stream_ ? sse(body) + "data: [DONE]\n\n" : json_text(body);
  }

 private:
  static Json empty_logprobs() {
    return {{"tokens", Json::array()},
            {"token_logprobs", Json::array()},
            {"top_logprobs", Json::array()},
            {"text_offset", Json::array()}};
  }
  struct Choice {
    std::string text, finish;
    size_t offset = 0;
    Json logprobs = empty_logprobs();
  };

  void add_logprobs(Choice& choice, const Piece& piece) const {
    Json top = Json::object();
    for (const TokenLogprob& other : piece.top) top[format_.token(other.id)] = LogprobFormat::number(other.logprob);
    choice.logprobs["tokens"].push_back(format_.token(piece.id));
    choice.logprobs["token_logprobs"].push_back(LogprobFormat::number(piece.logprob));
    choice.logprobs["top_logprobs"].push_back(std::move(top));
    choice.logprobs["text_offset"].push_back(choice.offset);
  }
  std::string chunk(size_t i, const std::string& text, Json logprobs, Json finish) const {
    Json event = head_;
    event["choices"] = Json::array(
        {{{"index", i}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}}});
    return sse(event);
  }

  const bool stream_, usage_, logprobs_;
  const LogprobFormat format_;
  std::vector<Choice> choices_;
  const Json head_;
};

}  // namespace

ApiResult<void> completions(const App& app, const Call& call) {
  GODWIT_ASSIGN(const nlohmann::json body, parse_body(*call.request));
  GODWIT_ASSIGN(const Fields fields, Fields::of(body));
  GODWIT_TRY(check_model(app, fields));
  Plan plan;
  plan.options.max_tokens = 16;  // as the protocol has it
  GODWIT_TRY(read_plan(app, fields, {}, plan));
  GODWIT_TRY(fields.refuse("echo", "the prompt is not sent back"));
  GODWIT_TRY(fields.refuse("suffix", "text is only continued, not inserted"));
  GODWIT_TRY(fields.refuse("best_of", "answers are not ranked; use 'n'", plan.choices));
  GODWIT_TRY(fields.read("logprobs", plan.options.sampling.logprobs, 0, 20));
  GODWIT_ASSIGN(const bool usage, read_stream_options(fields, plan));
  GODWIT_TRY(read_prompts(app, fields, "prompt", plan));
  auto form = std::make_unique<CompletionForm>(app, call, plan, usage);
  return generate(app, call, std::move(plan), std::move(form));
}

}  // namespace godwit::server
