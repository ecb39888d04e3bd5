#include "text/chat_template.h"

#include <ctime>

#include "base/result.h"

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;

jinja::CivilTime local_time() {
  std::time_t now = std::time(nullptr);
  std::tm tm{};
  localtime_r(&now, &tm);
  return {tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec};
}

// Reasoning goes by several names; templates read either the first or the second, so a message gets both.
Json with_reasoning(const Json& message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    auto it = message.find(key);
    if (it == message.end() || it->is_null()) continue;
    Json copy = Json::object();
    copy["thinking"] = *it;
    for (const auto& [name, value] : message.items()) copy[name] = value;
    copy["reasoning_content"] = *it;
    return copy;
  }
  return message;
}

Status check_array(const Json& value, std::string_view what) {
  if (value.is_null()) return {};
  if (!value.is_array()) return errorf(ErrorCode::kInvalidArgument, "{} must be a list", what);
  for (size_t i = 0; i < value.size(); i++) {
    if (!value[i].is_object()) return errorf(ErrorCode::kInvalidArgument, "{}[{}] must be an object", what, i);
  }
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::make(std::string_view source, std::string bos_token, std::string eos_token,
                                        std::string label) {
  return from_json(Json(source), std::move(bos_token), std::move(eos_token), std::move(label));
}

Result<ChatTemplate> ChatTemplate::from_json(const Json& chat_template, std::string bos_token, std::string eos_token,
                                             std::string label) {
  ChatTemplate chat;
  chat.bos_token_ = std::move(bos_token);
  chat.eos_token_ = std::move(eos_token);
  chat.label_ = std::move(label);
  auto add = [&](std::string name, const std::string& source) -> Status {
    GODWIT_ASSIGN(jinja::Template compiled, jinja::Template::parse(source, chat.label_));
    chat.templates_.push_back({std::move(name), std::move(compiled)});
    return {};
  };
  if (chat_template.is_string()) {
    GODWIT_TRY(add("default", chat_template.get_ref<const std::string&>()));
  } else if (chat_template.is_array()) {
    for (const Json& entry : chat_template) {
      bool named = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                   entry.contains("template") && entry["template"].is_string();
      if (!named) {
        return errorf(ErrorCode::kBadData, "{}: chat_template lists an entry without a name and a template",
                      chat.label_);
      }
      GODWIT_TRY(add(entry["name"].get<std::string>(), entry["template"].get_ref<const std::string&>()));
    }
  } else if (!chat_template.is_null()) {
    return errorf(ErrorCode::kBadData, "{}: chat_template is neither text nor a list", chat.label_);
  }
  if (chat.templates_.empty()) {
    return errorf(ErrorCode::kNotFound, "{} has no chat template; give one with --chat-template FILE", chat.label_);
  }
  return chat;
}

const jinja::Template* ChatTemplate::choose(bool with_tools) const {
  const jinja::Template* chosen = nullptr;
  for (const Named& named : templates_) {
    if (with_tools && named.name == "tool_use") return &named.compiled;
    if (named.name == "default") chosen = &named.compiled;
  }
  return chosen;
}

std::string ChatTemplate::names() const {
  std::string list;
  for (const Named& named : templates_) list += (list.empty() ? "" : ", ") + named.name;
  return list;
}

Result<std::string> ChatTemplate::apply(const Json& messages, const ChatOptions& options) const {
  GODWIT_TRY(check_array(messages, "messages"));
  GODWIT_TRY(check_array(options.tools, "tools"));
  GODWIT_TRY(check_array(options.documents, "documents"));
  if (messages.empty()) return errorf(ErrorCode::kInvalidArgument, "a chat needs at least one message");
  if (!options.extra.is_object()) {
    return errorf(ErrorCode::kInvalidArgument, "the chat template's extra variables must be an object");
  }
  const jinja::Template* compiled = choose(!options.tools.is_null());
  if (compiled == nullptr) {
    return errorf(ErrorCode::kNotFound,
                  "{} has chat templates named {} and none named default; give one with --chat-template FILE", label_,
                  names());
  }
  Json context = Json::object();
  context["messages"] = Json::array();
  for (const Json& message : messages) context["messages"].push_back(with_reasoning(message));
  context["tools"] = options.tools;
  context["documents"] = options.documents;
  context["add_generation_prompt"] = options.add_generation_prompt;
  context["bos_token"] = bos_token_;
  context["eos_token"] = eos_token_;
  for (const auto& [name, value] : options.extra.items()) context[name] = value;
  jinja::RenderOptions render = options.render;
  if (!render.now) render.now = local_time();
  return compiled->render(context, render);
}

}  // namespace godwit
