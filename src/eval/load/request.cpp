#include "eval/load/request.h"

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "eval/load/answer.h"

namespace godwit::load {
namespace asio = boost::asio;
namespace {

constexpr size_t kMostAnswerBytes = size_t{4} << 20;
constexpr double kProbeSeconds = 120;

// The whole body of an answer to one request, the only one under way.
Result<std::string> ask(asio::io_context& io, HttpClient& client, std::string path, std::string body) {
  std::string answer, what = body.empty() ? "GET " + path : "POST " + path;
  Result<std::string> result = errorf(ErrorCode::kIo, "{}: no answer came", what);
  client.start({.path = std::move(path),
                .body = std::move(body),
                .timeout_seconds = kProbeSeconds,
                .most_body_bytes = kMostAnswerBytes,
                .on_body =
                    [&](int, std::string_view bytes) {
                      answer += bytes;
                      return Status();
                    },
                .on_end =
                    [&](int status, const std::string& failure, const std::string& detail) {
                      if (!failure.empty())
                        result =
                            errorf(ErrorCode::kIo, "the server fails at {} ({}: {}); is it there, and the URL right?",
                                   what, failure, detail);
                      else if (status != 200)
                        result = errorf(ErrorCode::kIo, "the server answers {} with status {}: {}", what, status,
                                        error_message(answer));
                      else
                        result = std::move(answer);
                    }});
  io.restart();
  io.run();
  return result;
}

Result<double> prompt_tokens(asio::io_context& io, HttpClient& client, const RunOptions& options, int words) {
  const std::string prompt = PromptMaker::words(options.prompts.seed + static_cast<uint64_t>(words), words);
  GODWIT_ASSIGN(const std::string answer,
                ask(io, client, request_path(options), request_body(options, prompt, 1, false)));
  GODWIT_ASSIGN(const Usage usage, parse_usage(answer));
  if (usage.prompt_tokens < 0)
    return errorf(ErrorCode::kUnsupported,
                  "the server does not say how many tokens a prompt has (usage.prompt_tokens); give --tokens-per-word");
  return static_cast<double>(usage.prompt_tokens);
}

}  // namespace

std::string request_path(const RunOptions& options) {
  return options.chat ? "/chat/completions" : "/completions";
}

std::string request_body(const RunOptions& options, const std::string& prompt, int output_tokens, bool stream) {
  nlohmann::json body = {
      {"model", options.model}, {"max_tokens", output_tokens}, {"temperature", 0}, {"stream", stream}};
  if (options.chat)
    body["messages"] = {{{"role", "user"}, {"content", prompt}}};
  else
    body["prompt"] = prompt;
  if (stream) body["stream_options"] = {{"include_usage", true}};
  if (options.ignore_eos) body["ignore_eos"] = true;
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::string> ask_model(asio::io_context& io, HttpClient& client) {
  GODWIT_ASSIGN(const std::string answer, ask(io, client, "/models", {}));
  GODWIT_ASSIGN(const nlohmann::json json,
                parse_json(answer, "the list of models", {.max_values = 100'000, .max_depth = 16}));
  const auto list = json.is_object() ? json.find("data") : json.end();
  if (list == json.end() || !list->is_array() || list->empty())
    return errorf(ErrorCode::kBadData, "the server lists no model; give its name by --model-name");
  GODWIT_ASSIGN(const JsonObject first, JsonObject::of(list->front(), "the list of models"));
  return first.get<std::string>("id");
}

Status calibrate(asio::io_context& io, HttpClient& client, RunOptions& options) {
  constexpr int kFew = 16, kMany = 272;
  GODWIT_ASSIGN(const double few, prompt_tokens(io, client, options, kFew));
  GODWIT_ASSIGN(const double many, prompt_tokens(io, client, options, kMany));
  const double per_word = (many - few) / (kMany - kFew);
  if (!(per_word > 0.05 && per_word < 50))
    return errorf(ErrorCode::kBadData,
                  "the server counts {} tokens for {} words and {} for {}, which makes no sense; "
                  "give --tokens-per-word",
                  few, kFew, many, kMany);
  options.prompts.tokens_per_word = per_word;
  options.prompts.tokens_around = std::max(few - per_word * kFew, 0.0);
  return {};
}

}  // namespace godwit::load
