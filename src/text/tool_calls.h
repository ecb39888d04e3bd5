// How models write calls of tools: which format a chat template speaks, and the marks of each.
#pragma once

#include <optional>
#include <string_view>

#include <godwit/tools.h>

namespace godwit {

// What stands before and behind calls; empty where a format has no such mark.
struct ToolMarks {
  std::string_view open, close;            // around all calls, or around each
  std::string_view call, separator, done;  // kDeepSeek: around each, and between name and arguments
};
ToolMarks marks_of(ToolFormat format);
std::string_view name_of(ToolFormat format);

struct ToolStyle {
  ToolFormat format;
  bool newer = false;  // kMistral: NAME[ARGS]{…} and no list; kDeepSeek: the arguments stand in no block of code
};
inline constexpr std::string_view kMistralArguments = "[ARGS]";

// By what the template's source mentions; nothing when it takes no tools.
std::optional<ToolStyle> tool_style_of(std::string_view template_source);

}  // namespace godwit
