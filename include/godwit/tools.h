// Tools that a model may call, and the calls in what it says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace godwit {

struct Tool {
  std::string name, description{};
  std::string parameters{};  // JSON schema of the arguments, an object; empty: none
};

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON, an object
};

// How a family of models writes calls. docs/grammar.md shows each.
enum class ToolFormat { kHermes, kLlama, kMistral, kDeepSeek, kJson };

// Turns the text of an answer, as it comes, into content and calls. A call is told when it is complete. What looks like
// a call and is none becomes content; nothing is lost but white space next to calls. Works on the text of
// GenerateOptions::keep_special. Not thread-safe.
class ToolCallParser {
 public:
  struct Output {
    std::string content;
    std::vector<ToolCall> calls;
  };

  // Formats without marks (kLlama, kJson) count as calls only those of these tools. `seed` makes the calls' ids differ
  // from those of other answers.
  ToolCallParser(ToolFormat format, std::vector<std::string> tool_names, uint64_t seed);
  ~ToolCallParser();
  ToolCallParser(ToolCallParser&&) noexcept;
  ToolCallParser& operator=(ToolCallParser&&) noexcept;

  Output push(std::string_view text);
  Output finish();  // the rest

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace godwit
