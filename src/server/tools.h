// Tools in OpenAI's and Anthropic's words: definitions and choice into what the engine takes.
#pragma once

#include <string>
#include <vector>

#include "server/openai.h"

namespace godwit::server {

struct ToolUse {
  std::vector<Tool> tools;  // that the prompt describes
  bool in_prompt = false;   // see ChatRequest::tools_in_prompt
  bool reads_calls() const { return !tools.empty(); }
};

// "tools", "tool_choice" and "parallel_tool_calls" of a chat completion. A choice that forces a call becomes the
// answer's constraint.
ApiResult<ToolUse> read_tools(const App& app, const Request& request, const Fields& fields, GenerateOptions& options);
// Likewise of a response, whose tools and choice have no "function" inside.
ApiResult<ToolUse> read_response_tools(const App& app, const Request& request, const Fields& fields,
                                       GenerateOptions& options);
// "tools" and "tool_choice" of an Anthropic message.
ApiResult<ToolUse> read_anthropic_tools(const App& app, const Request& request, const Fields& fields,
                                        GenerateOptions& options);

}  // namespace godwit::server
