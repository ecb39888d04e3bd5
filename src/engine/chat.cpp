// Conversations with tools: messages as templates expect them, and tools for models whose template takes none.
#include <random>

#include "base/json.h"
#include "engine/engine_impl.h"
#include "text/grammar/tool_grammar.h"

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;
constexpr JsonLimits kLimits = {.max_bytes = size_t{4} << 20, .max_values = 200'000, .max_depth = 64};

Result<Json> object_of(std::string_view text, const std::string& label) {
  GODWIT_ASSIGN(Json json, parse_ordered_json(text, label, kLimits));
  if (!json.is_object()) return errorf(ErrorCode::kInvalidArgument, "{} must be a JSON object", label);
  return json;
}

Result<Json> tool_json(const Tool& tool) {
  if (tool.name.empty()) return errorf(ErrorCode::kInvalidArgument, "a tool has no name");
  Json function = {{"name", tool.name}, {"description", tool.description}};
  if (!tool.parameters.empty()) {
    GODWIT_ASSIGN(function["parameters"],
                  object_of(tool.parameters, fmt::format("the parameters of the tool '{:.60}'", tool.name)));
  } else {
    function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

// Arguments are an object and no text: templates print them as JSON.
Result<Json> message_json(const ChatMessage& message) {
  Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.name.empty()) json["name"] = message.name;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (message.tool_calls.empty()) return json;
  if (message.content.empty()) json["content"] = nullptr;
  for (const ToolCall& call : message.tool_calls) {
    GODWIT_ASSIGN(Json arguments, object_of(call.arguments.empty() ? "{}" : call.arguments,
                                            fmt::format("the arguments of the call of '{:.60}'", call.name)));
    Json function = {{"name", call.name}, {"arguments", std::move(arguments)}};
    json["tool_calls"].push_back({{"id", call.id}, {"type", "function"}, {"function", std::move(function)}});
  }
  return json;
}

std::string call_text(const Json& call) {
  const Json& function = call["function"];
  return fmt::format("<tool_call>\n{}\n</tool_call>",
                     Json{{"name", function["name"]}, {"arguments", function["arguments"]}}.dump());
}

// The conversation for a template that knows neither tools nor their answers: all as text, in the Hermes format.
Json with_tools_as_text(const Json& messages, const Json& tools) {
  std::string rules =
      "You can call tools. Each line between <tools> and </tools> describes one; its parameters are a JSON "
      "schema.\n<tools>\n";
  for (const Json& tool : tools) rules += tool["function"].dump() + "\n";
  rules +=
      "</tools>\nTo call a tool, answer with its name and arguments, like this:\n<tool_call>\n{\"name\": \"the tool's "
      "name\", \"arguments\": {}}\n</tool_call>\nIts result will come as a message.";
  Json result = Json::array();
  const bool own = !messages.empty() && messages[0]["role"] == "system";
  if (own) rules = messages[0]["content"].get<std::string>() + "\n\n" + rules;
  result.push_back({{"role", "system"}, {"content", rules}});
  for (size_t i = own ? 1 : 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    std::string role = message["role"], content = message["content"].is_string() ? message["content"] : Json("");
    if (message.contains("tool_calls"))
      for (const Json& call : message["tool_calls"]) {
        if (!content.empty()) content += '\n';
        content += call_text(call);
      }
    if (role == "tool") {
      role = "user";
      content = fmt::format("<tool_response>\n{}\n</tool_response>", content);
    }
    // Answers to several calls are one message: many templates want the roles to take turns.
    if (role == "user" && result.back()["role"] == "user" && message["role"] == "tool")
      result.back()["content"] = result.back()["content"].get<std::string>() + "\n" + content;
    else
      result.push_back({{"role", role}, {"content", content}});
  }
  return result;
}

}  // namespace

Result<std::vector<TokenId>> Engine::chat_tokens(std::span<const ChatMessage> messages,
                                                 bool add_generation_prompt) const {
  return chat_prompt({.messages = {messages.begin(), messages.end()}, .add_generation_prompt = add_generation_prompt});
}

Result<std::vector<TokenId>> Engine::chat_prompt(const ChatRequest& request) const {
  const Vocabulary& vocabulary = *impl_->vocabulary;
  Json messages = Json::array(), tools = Json::array();
  for (const ChatMessage& message : request.messages) {
    GODWIT_ASSIGN(Json json, message_json(message));
    messages.push_back(std::move(json));
  }
  for (const Tool& tool : request.tools) {
    GODWIT_ASSIGN(Json json, tool_json(tool));
    tools.push_back(std::move(json));
  }
  ChatOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  if (!request.variables.empty()) {
    GODWIT_ASSIGN(options.extra, object_of(request.variables, "the chat template's variables"));
  }
  const bool uses_tools =
      !tools.empty() || std::any_of(request.messages.begin(), request.messages.end(),
                                    [](const auto& m) { return m.role == "tool" || !m.tool_calls.empty(); });
  if (uses_tools && !tool_format()) {
    if (!request.tools_in_prompt)
      return errorf(ErrorCode::kUnsupported,
                    "{}: the model's chat template takes no tools; describe them in the prompt instead "
                    "(ChatRequest::tools_in_prompt), or give a template that does",
                    impl_->label);
    messages = with_tools_as_text(messages, tools);
  } else if (!tools.empty()) {
    options.tools = std::move(tools);
  }
  return encode_chat(vocabulary, std::move(messages), options);
}

std::optional<ToolFormat> Engine::tool_format() const {
  const auto style = tool_style_of(impl_->vocabulary->chat_source);
  return style ? std::optional(style->format) : std::nullopt;
}

ToolCallParser Engine::tool_parser(std::span<const Tool> tools) const {
  std::vector<std::string> names;
  for (const Tool& tool : tools) names.push_back(tool.name);
  std::random_device random;
  return ToolCallParser(tool_format().value_or(ToolFormat::kHermes), std::move(names),
                        uint64_t{random()} << 32 | random());
}

Result<std::shared_ptr<const Constraint>> Engine::tool_calls(std::span<const Tool> tools, int most_calls) const {
  const Vocabulary& vocabulary = *impl_->vocabulary;
  const ToolStyle style = tool_style_of(vocabulary.chat_source).value_or(ToolStyle{ToolFormat::kHermes});
  std::string key = fmt::format("tools {}", most_calls);
  for (const Tool& tool : tools)
    key += Json::array({tool.name, tool.parameters}).dump(-1, ' ', false, Json::error_handler_t::replace);
  return impl_->constraints->get(key,
                                 [&] { return tool_call_grammar(vocabulary.tokenizer, style, tools, most_calls); });
}

}  // namespace godwit
