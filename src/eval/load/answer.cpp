#include "eval/load/answer.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"

namespace godwit::load {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits = {.max_bytes = size_t{4} << 20, .max_values = 200'000, .max_depth = 32};

const json* member(const json& of, const char* key) {
  if (!of.is_object()) return nullptr;
  const auto found = of.find(key);
  return found == of.end() || found->is_null() ? nullptr : &*found;
}

int64_t count_or(const json* of, const char* key, int64_t otherwise) {
  const json* value = of == nullptr ? nullptr : member(*of, key);
  if (value == nullptr || !value->is_number_integer()) return otherwise;
  const double count = value->get<double>();
  return count >= 0 && count <= 1e9 ? static_cast<int64_t>(count) : otherwise;
}

void read_usage(const json& event, Usage& usage) {
  const json* said = member(event, "usage");
  if (said == nullptr) return;
  usage.prompt_tokens = count_or(said, "prompt_tokens", -1);
  usage.completion_tokens = count_or(said, "completion_tokens", -1);
  usage.cached_tokens = count_or(member(*said, "prompt_tokens_details"), "cached_tokens", 0);
}

bool has_text(const json& of, const char* key) {
  const json* value = member(of, key);
  return value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty();
}

bool carries_token(const json& choice) {
  if (has_text(choice, "text")) return true;
  const json* delta = member(choice, "delta");
  return delta != nullptr && (has_text(*delta, "content") || has_text(*delta, "reasoning_content") ||
                              has_text(*delta, "reasoning") || member(*delta, "tool_calls") != nullptr);
}

std::string printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) out += c >= ' ' && c < 0x7f ? c : '?';
  return out;
}

std::string message_of(const json& error) {
  if (error.is_string()) return printable(error.get_ref<const std::string&>());
  const json* message = member(error, "message");
  return message != nullptr && message->is_string() ? printable(message->get_ref<const std::string&>())
                                                    : "it does not say why";
}

}  // namespace

Result<Usage> parse_usage(std::string_view text) {
  GODWIT_ASSIGN(const json answer, parse_json(text, "the answer", kLimits));
  Usage usage;
  read_usage(answer, usage);
  return usage;
}

std::string error_message(std::string_view body) {
  const auto answer = parse_json(body, "the answer", kLimits);
  const json* error = answer ? member(*answer, "error") : nullptr;
  return error != nullptr ? message_of(*error) : printable(body);
}

Result<int> AnswerReader::feed(std::string_view bytes, double now, Histogram& gaps) {
  const int64_t before = events_;
  GODWIT_TRY(sse_.feed(bytes, [&](std::string_view data) { return event(data, now, gaps); }));
  return static_cast<int>(events_ - before);
}

Status AnswerReader::event(std::string_view data, double now, Histogram& gaps) {
  if (data == "[DONE]") {
    done_ = true;
    return {};
  }
  GODWIT_ASSIGN(const json event, parse_json(data, "an event of the stream", kLimits));
  if (const json* error = member(event, "error")) {
    server_failed_ = true;
    return errorf(ErrorCode::kBadData, "{}", message_of(*error));
  }
  read_usage(event, usage_);
  const json* choices = member(event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return {};
  const json& choice = choices->front();
  if (member(choice, "finish_reason") != nullptr) done_ = true;
  if (!carries_token(choice)) return {};
  if (++events_ > most_events_)
    return errorf(ErrorCode::kExhausted, "more than the {} tokens that were asked for", most_events_);
  if (events_ == 1)
    first_ = now;
  else
    gaps.add(now - last_);
  last_ = now;
  return {};
}

}  // namespace godwit::load
