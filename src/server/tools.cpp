#include "server/tools.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/result.h"

namespace godwit::server {
namespace {

constexpr size_t kMostTools = 128;
constexpr int kMostCalls = 8;  // in one answer that must call

// One tool: where its name stands, and under which key its schema.
ApiResult<Tool> read_tool(const Fields& place, const Json& ordered, const char* schema_key) {
  Tool tool;
  GODWIT_ASSIGN(tool.name, place.text("name"));
  const bool sane = !tool.name.empty() && tool.name.size() <= 128 &&
                    std::all_of(tool.name.begin(), tool.name.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
                    });
  if (!sane)
    return bad_field(place.name("name"),
                     fmt::format("'{}' must be 1 to 128 letters, digits, _, - or .", place.name("name")));
  GODWIT_TRY(place.read("description", tool.description));
  if (const nlohmann::json* schema = place.find(schema_key)) {
    if (!schema->is_object())
      return bad_field(place.name(schema_key), fmt::format("'{}' must be a JSON schema", place.name(schema_key)));
    tool.parameters =
        json_text(ordered.at(schema_key));  // as the client wrote it, for the prompt and the arguments' order
  }
  return tool;
}

enum class Must { kMay, kNone, kAny, kNamed };
struct Choice {
  Must must = Must::kMay;
  std::string name;  // of the tool that must be called
  bool parallel = true;
};

ApiResult<ToolUse> use(const App& app, std::vector<Tool> tools, const Choice& choice, GenerateOptions& options) {
  if (choice.must == Must::kNone) tools.clear();
  if (tools.empty()) {
    if (choice.must == Must::kAny || choice.must == Must::kNamed)
      return bad_field("tool_choice", "'tool_choice' asks for a call, and there are no 'tools'");
    // Calls in the conversation are written as its tools would be.
    return ToolUse{.tools = {}, .in_prompt = app.options.tools_in_prompt && !app.engine.tool_format()};
  }
  if (options.constraint)
    return bad_field("response_format",
                     "an answer cannot be held to a format and call tools; give one, or tool_choice none");
  ToolUse result{.tools = std::move(tools)};
  if (!app.engine.tool_format()) {
    if (!app.options.tools_in_prompt)
      return bad_field("tools",
                       "the model's chat template takes no tools; the server can describe them in the system message "
                       "if it is started with --tools-in-prompt");
    result.in_prompt = true;
  }
  options.keep_special = true;
  if (choice.must == Must::kMay) return result;
  std::vector<Tool> callable = result.tools;
  if (choice.must == Must::kNamed) std::erase_if(callable, [&](const Tool& tool) { return tool.name != choice.name; });
  if (callable.empty())
    return bad_field("tool_choice", fmt::format("there is no tool '{}'", choice.name.substr(0, 64)));
  const bool many = choice.must == Must::kAny && choice.parallel;
  auto constraint = app.engine.tool_calls(callable, many ? kMostCalls : 1);
  if (!constraint) return bad_field("tools", fmt::format("'tools': {}", constraint.error().message));
  options.constraint = std::move(*constraint);
  return result;
}

// The elements of "tools", as they are and with their keys in order.
template <class F>
ApiResult<std::vector<Tool>> each_tool(const Request& request, const Fields& fields, F&& read) {
  std::vector<Tool> tools;
  if (!fields.has("tools") || fields.find("tools")->empty()) return tools;
  GODWIT_ASSIGN(const nlohmann::json* list, fields.array("tools"));
  if (list->size() > kMostTools) return bad_field("tools", fmt::format("'tools' may hold at most {}", kMostTools));
  GODWIT_ASSIGN(const Json ordered, ordered_member(request, "/tools"));
  for (size_t i = 0; i < list->size(); ++i) {
    GODWIT_ASSIGN(const Fields entry, Fields::of((*list)[i], fmt::format("tools[{}]", i)));
    GODWIT_ASSIGN(Tool tool, read(entry, ordered[i]));
    tools.push_back(std::move(tool));
  }
  return tools;
}

ApiResult<void> is_function(const Fields& entry) {
  GODWIT_ASSIGN(const std::string type, entry.text("type"));
  if (type == "function") return {};
  return bad_field(entry.name("type"),
                   fmt::format("'{}' must be function: there are no built-in tools", entry.name("type")));
}

// "tool_choice" and "parallel_tool_calls" of OpenAI; `named` reads a choice that is an object.
template <class F>
ApiResult<Choice> read_choice(const Fields& fields, F&& named) {
  Choice choice;
  GODWIT_TRY(fields.read("parallel_tool_calls", choice.parallel));
  const nlohmann::json* given = fields.find("tool_choice");
  if (given == nullptr || *given == "auto") return choice;
  if (*given == "none") {
    choice.must = Must::kNone;
  } else if (*given == "required") {
    choice.must = Must::kAny;
  } else if (given->is_object()) {
    GODWIT_ASSIGN(const Fields inner, Fields::of(*given, "tool_choice"));
    choice.must = Must::kNamed;
    GODWIT_ASSIGN(choice.name, named(inner));
  } else {
    return bad_field("tool_choice", "'tool_choice' must be none, auto, required or a function");
  }
  return choice;
}

}  // namespace

ApiResult<ToolUse> read_tools(const App& app, const Request& request, const Fields& fields, GenerateOptions& options) {
  GODWIT_ASSIGN(auto tools, each_tool(request, fields, [](const Fields& entry, const Json& ordered) -> ApiResult<Tool> {
                  GODWIT_TRY(is_function(entry));
                  const nlohmann::json* function = entry.find("function");
                  if (function == nullptr)
                    return bad_field(entry.name("function"), fmt::format("'{}' is missing", entry.name("function")));
                  GODWIT_ASSIGN(const Fields place, Fields::of(*function, entry.name("function")));
                  return read_tool(place, ordered.at("function"), "parameters");
                }));
  GODWIT_ASSIGN(const Choice choice, read_choice(fields, [](const Fields& given) -> ApiResult<std::string> {
                  const nlohmann::json* function = given.find("function");
                  if (function == nullptr) return bad_field("tool_choice", "'tool_choice.function' is missing");
                  GODWIT_ASSIGN(const Fields inner, Fields::of(*function, "tool_choice.function"));
                  return inner.text("name");
                }));
  return use(app, std::move(tools), choice, options);
}

ApiResult<ToolUse> read_response_tools(const App& app, const Request& request, const Fields& fields,
                                       GenerateOptions& options) {
  GODWIT_ASSIGN(auto tools, each_tool(request, fields, [](const Fields& entry, const Json& ordered) -> ApiResult<Tool> {
                  GODWIT_TRY(is_function(entry));
                  return read_tool(entry, ordered, "parameters");
                }));
  GODWIT_ASSIGN(const Choice choice, read_choice(fields, [](const Fields& given) -> ApiResult<std::string> {
                  GODWIT_ASSIGN(const std::string type, given.text("type"));
                  if (type != "function") return bad_field("tool_choice.type", "'tool_choice.type' must be function");
                  return given.text("name");
                }));
  return use(app, std::move(tools), choice, options);
}

ApiResult<ToolUse> read_anthropic_tools(const App& app, const Request& request, const Fields& fields,
                                        GenerateOptions& options) {
  GODWIT_ASSIGN(auto tools, each_tool(request, fields, [](const Fields& entry, const Json& ordered) {
                  return read_tool(entry, ordered, "input_schema");
                }));
  Choice choice;
  if (const nlohmann::json* given = fields.find("tool_choice")) {
    GODWIT_ASSIGN(const Fields inner, Fields::of(*given, "tool_choice"));
    GODWIT_ASSIGN(const std::string type, inner.text("type"));
    bool one = false;
    GODWIT_TRY(inner.read("disable_parallel_tool_use", one));
    choice.parallel = !one;
    if (type == "tool") {
      choice.must = Must::kNamed;
      GODWIT_ASSIGN(choice.name, inner.text("name"));
    } else if (type == "any" || type == "none") {
      choice.must = type == "any" ? Must::kAny : Must::kNone;
    } else if (type != "auto") {
      return bad_field("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none");
    }
  }
  return use(app, std::move(tools), choice, options);
}

}  // namespace godwit::server
