#include "text/grammar/tool_grammar.h"

#include "base/result.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/token_trie.h"

namespace godwit {
namespace {

using Node = GrammarBuilder::Node;
using Rule = GrammarBuilder::Rule;
using Json = nlohmann::ordered_json;
constexpr int kMostCalls = 64;

class ToolGrammar {
 public:
  ToolGrammar(const Tokenizer& tokenizer, ToolStyle style) : tokenizer_(tokenizer), style_(style), rules_(b_) {}

  Result<Grammar> make(std::span<const Tool> tools, int most_calls) {
    const Rule root = b_.rule(), call = b_.rule();
    for (const Tool& tool : tools) {
      GODWIT_ASSIGN(const Rule arguments, arguments_of(tool));
      add_call(tool.name, arguments, call);
    }
    const Node begin = b_.node();
    b_.skip(root.start, begin);
    b_.byte(root.start, ' ', ' ', begin);  // SentencePiece begins texts with a space, which decoding drops
    add_calls(begin, call, most_calls, root.end);
    return b_.finish(root, "the tools' parameters");
  }

 private:
  Result<Rule> arguments_of(const Tool& tool) {
    const Rule rule = b_.rule();
    const std::string label = fmt::format("the parameters of the tool '{:.60}'", tool.name);
    const std::string_view none = R"({"type":"object","properties":{},"additionalProperties":false})";
    GODWIT_ASSIGN(const Json schema, parse_schema(tool.parameters.empty() ? none : tool.parameters, label));
    if (!schema.is_object() || (schema.contains("type") && schema["type"] != Json("object")))
      return errorf(ErrorCode::kInvalidArgument, "{} must be a schema of type object", label);
    if (schema.contains("type") || schema.contains("$ref") || schema.contains("anyOf")) {
      GODWIT_TRY(add_json_schema(rules_, schema, label, rule.start, rule.end));
    } else {
      Json object = schema;
      object["type"] = "object";
      GODWIT_TRY(add_json_schema(rules_, object, label, rule.start, rule.end));
    }
    return rule;
  }

  Node mark(Node from, std::string_view text) {
    const auto id = tokenizer_.find(text);
    if (id && tokenizer_.is_special(*id)) from = b_.text(from, std::string_view(&TokenTrie::kSpecialMark, 1));
    return b_.text(from, text);
  }

  // {"name": …, "arguments": …}
  void add_object(const std::string& name, const char* key, Rule arguments, Node from, Node to) {
    Node at = rules_.colon(b_.text(rules_.space(b_.text(from, "{")), R"("name")"));
    at = rules_.space(b_.text(at, Json(name).dump() + ","));
    at = rules_.colon(b_.text(at, fmt::format("\"{}\"", key)));
    const Node after = b_.node();
    b_.call(at, arguments, after);
    b_.text(rules_.space(after), "}", to);
  }

  void add_call(const std::string& name, Rule arguments, Rule call) {
    const ToolMarks marks = marks_of(style_.format);
    const Node after = b_.node();
    switch (style_.format) {
      case ToolFormat::kHermes:
        add_object(name, "arguments", arguments, b_.text(mark(call.start, marks.open), "\n"), after);
        return b_.skip(mark(b_.text(after, "\n"), marks.close), call.end);
      case ToolFormat::kLlama:
        return add_object(name, "parameters", arguments, call.start, call.end);
      case ToolFormat::kJson:
        return add_object(name, "arguments", arguments, call.start, call.end);
      case ToolFormat::kMistral:
        if (!style_.newer) return add_object(name, "arguments", arguments, call.start, call.end);
        return b_.call(mark(b_.text(mark(call.start, marks.open), name), kMistralArguments), arguments, call.end);
      case ToolFormat::kDeepSeek: {
        const Node begin = mark(call.start, marks.call);
        if (style_.newer) {
          b_.call(mark(b_.text(begin, name), marks.separator), arguments, after);
          return b_.skip(mark(after, marks.done), call.end);
        }
        b_.call(b_.text(mark(b_.text(begin, "function"), marks.separator), name + "\n```json\n"), arguments, after);
        return b_.skip(mark(b_.text(after, "\n```"), marks.done), call.end);
      }
    }
  }

  void add_calls(Node from, Rule call, int most, Node to) {
    const ToolMarks marks = marks_of(style_.format);
    std::string_view between = "\n";
    Node end = to;
    if (style_.format == ToolFormat::kLlama || style_.format == ToolFormat::kJson) most = 1;
    if (style_.format == ToolFormat::kDeepSeek) {
      from = mark(from, marks.open);
      end = b_.node();
      b_.skip(mark(end, marks.close), to);
    }
    if (style_.format == ToolFormat::kMistral) {
      between = style_.newer ? "" : ", ";
      if (!style_.newer) {
        const Node opened = mark(from, marks.open), spaced = b_.node();
        b_.skip(opened, spaced);
        b_.byte(opened, ' ', ' ', spaced);
        from = b_.text(spaced, "[");
        end = b_.node();
        b_.text(end, "]", to);
      }
    }
    for (int i = 0; i < most; ++i) {
      const Node after = b_.node();
      b_.call(from, call, after);
      b_.skip(after, end);
      from = b_.text(after, between);
    }
  }

  const Tokenizer& tokenizer_;
  const ToolStyle style_;
  GrammarBuilder b_;
  JsonRules rules_;
};

}  // namespace

Result<Grammar> tool_call_grammar(const Tokenizer& tokenizer, ToolStyle style, std::span<const Tool> tools,
                                  int most_calls) {
  if (tools.empty()) return errorf(ErrorCode::kInvalidArgument, "there is no tool to call");
  if (most_calls < 1 || most_calls > kMostCalls)
    return errorf(ErrorCode::kInvalidArgument, "{} calls of tools make no sense: give 1 to {}", most_calls, kMostCalls);
  return ToolGrammar(tokenizer, style).make(tools, most_calls);
}

}  // namespace godwit
