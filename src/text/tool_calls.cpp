#include "text/tool_calls.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace godwit {
namespace {

using Json = nlohmann::ordered_json;
constexpr JsonLimits kLimits = {.max_bytes = size_t{1} << 20, .max_values = 100'000, .max_depth = 64};
constexpr std::string_view kPythonTag = "<|python_tag|>", kCallId = "[CALL_ID]", kSpace = " \t\r\n";
constexpr size_t kLongestName = 256;

size_t skip_space(std::string_view text, size_t pos) {
  return std::min(text.find_first_not_of(kSpace, pos), text.size());
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(skip_space(text, 0));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// Where the object or array that begins at `begin` ends; npos when it does not.
size_t json_end(std::string_view text, size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

bool ends_in_string(std::string_view json) {
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '\\' && quoted)
      ++i;
    else if (json[i] == '"')
      quoted = !quoted;
  }
  return quoted;
}

// How much of the text's end may become white space and then `mark`.
size_t held_back(std::string_view text, std::string_view mark) {
  size_t begin = text.size();
  for (size_t n = std::min(mark.size() - 1, text.size()); n > 0; --n) {
    if (!text.ends_with(mark.substr(0, n))) continue;
    begin -= n;
    break;
  }
  const size_t last = text.substr(0, begin).find_last_not_of(kSpace);
  return text.size() - (last == std::string_view::npos ? 0 : last + 1);
}

// {"name": …, "arguments" or "parameters": {…}}, also inside {"function": …}.
std::optional<ToolCall> call_of(const Json& json) {
  const Json* call = &json;
  if (call->is_object() && call->contains("function") && (*call)["function"].is_object()) call = &(*call)["function"];
  if (!call->is_object() || !call->contains("name") || !(*call)["name"].is_string()) return std::nullopt;
  Json arguments = Json::object();
  for (const char* key : {"arguments", "parameters"})
    if (call->contains(key)) arguments = (*call)[key];
  if (arguments.is_string()) {  // JSON inside JSON
    auto inner = parse_ordered_json(arguments.get_ref<const std::string&>(), "arguments", kLimits);
    if (inner) arguments = std::move(*inner);
  }
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{{}, (*call)["name"].get<std::string>(), arguments.dump()};
}

std::optional<std::vector<ToolCall>> calls_of(std::string_view text) {  // one, or a list
  const auto json = parse_ordered_json(text, "call", kLimits);
  if (!json || (json->is_array() && json->empty())) return std::nullopt;
  std::vector<ToolCall> calls;
  for (const Json& one : json->is_array() ? *json : Json::array({*json})) {
    auto call = call_of(one);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  return calls;
}

std::optional<std::string> arguments_of(std::string_view text) {
  text = trimmed(text);
  const auto json = parse_ordered_json(text.empty() ? "{}" : text, "arguments", kLimits);
  return json && json->is_object() ? std::optional(json->dump()) : std::nullopt;
}

// NAME<sep>{…}, or function<sep>NAME and {…} in a code block.
std::optional<ToolCall> deepseek_call(std::string_view text, std::string_view separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view name = trimmed(text.substr(0, at)), rest = trimmed(text.substr(at + separator.size()));
  if (const size_t block = rest.find("```"); block != std::string_view::npos && !rest.starts_with('{')) {
    name = trimmed(rest.substr(0, block));
    rest = rest.substr(block + 3);
    if (rest.starts_with("json")) rest.remove_prefix(4);
    rest = rest.substr(0, std::min(rest.rfind("```"), rest.size()));
  }
  auto arguments = arguments_of(rest);
  if (name.empty() || !arguments) return std::nullopt;
  return ToolCall{{}, std::string(name), std::move(*arguments)};
}

std::optional<std::vector<ToolCall>> deepseek_calls(std::string_view inner, const ToolMarks& marks) {
  std::vector<ToolCall> calls;
  for (size_t pos = 0; (pos = inner.find(marks.call, pos)) != std::string_view::npos;) {
    pos += marks.call.size();
    const size_t end = std::min(inner.find(marks.done, pos), inner.size());
    auto call = deepseek_call(inner.substr(pos, end - pos), marks.separator);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
    pos = end;
  }
  return calls.empty() ? std::nullopt : std::optional(std::move(calls));
}

// NAME.call(key=value, …) behind the python tag; values are JSON.
std::optional<ToolCall> python_call(std::string_view text) {
  const size_t at = text.find(".call(");
  if (at == std::string_view::npos || !text.ends_with(')')) return std::nullopt;
  Json arguments = Json::object();
  for (std::string_view rest = trimmed(text.substr(at + 6, text.size() - at - 7)); !rest.empty();) {
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string key(trimmed(rest.substr(0, equals)));
    rest.remove_prefix(equals + 1);
    size_t comma = 0;  // the first outside strings whose left side is JSON
    std::optional<Json> value;
    while (!value && comma < rest.size()) {
      comma = std::min(rest.find(',', comma + 1), rest.size());
      if (auto json = parse_ordered_json(trimmed(rest.substr(0, comma)), "argument", kLimits)) value = std::move(*json);
    }
    if (!value || key.empty()) return std::nullopt;
    arguments[key] = std::move(*value);
    rest = trimmed(rest.substr(std::min(comma + 1, rest.size())));
  }
  return ToolCall{{}, std::string(trimmed(text.substr(0, at))), arguments.dump()};
}

}  // namespace

ToolMarks marks_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return {"<tool_call>", "</tool_call>", {}, {}, {}};
    case ToolFormat::kMistral:
      return {"[TOOL_CALLS]", {}, {}, {}, {}};
    case ToolFormat::kDeepSeek:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
              "<｜tool▁call▁end｜>"};
    default:
      return {};
  }
}

std::string_view name_of(ToolFormat format) {
  constexpr std::string_view kNames[] = {"hermes", "llama", "mistral", "deepseek", "json"};
  return kNames[static_cast<size_t>(format)];
}

std::optional<ToolStyle> tool_style_of(std::string_view source) {
  const auto mentions = [&](std::string_view text) { return source.find(text) != std::string_view::npos; };
  if (!mentions("tools")) return std::nullopt;
  if (mentions(marks_of(ToolFormat::kHermes).open)) return ToolStyle{ToolFormat::kHermes};
  if (mentions(marks_of(ToolFormat::kMistral).open))
    return ToolStyle{ToolFormat::kMistral, mentions(kMistralArguments)};
  if (mentions(marks_of(ToolFormat::kDeepSeek).open)) return ToolStyle{ToolFormat::kDeepSeek, !mentions("```json")};
  const bool llama = mentions(kPythonTag) || mentions("ipython") || mentions("\"parameters\"");
  return ToolStyle{llama ? ToolFormat::kLlama : ToolFormat::kJson};
}

class ToolCallParser::Impl {
 public:
  Impl(ToolFormat format, std::vector<std::string> names, uint64_t seed)
      : format_(format), marks_(marks_of(format)), names_(std::move(names)), seed_(seed) {}

  Output run(std::string_view text, bool last) {
    text_ += text;
    Output out;
    for (size_t before = 0; !text_.empty() && text_.size() != before;) {
      before = text_.size();
      if (marks_.open.empty())
        read_plain(last, out);
      else
        read_marked(last, out);
    }
    return out;
  }

 private:
  void content(size_t bytes, Output& out) {
    const size_t begin = called_ ? std::min(skip_space(text_, 0), bytes) : 0;  // behind a call
    if (!called_) out.content += gap_;
    gap_.clear();
    out.content.append(text_, begin, bytes - begin);
    called_ = called_ && begin == bytes;
    text_.erase(0, bytes);
  }

  void calls(std::vector<ToolCall> list, size_t bytes, Output& out) {
    for (ToolCall& call : list) {
      call.id = next_id();
      out.calls.push_back(std::move(call));
    }
    called_ = true;
    gap_.clear();
    text_.erase(0, bytes);
  }

  // Mistral's templates take ids of nine letters and digits only.
  std::string next_id() {
    uint64_t z = seed_ += 0x9e3779b97f4a7c15u;  // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return format_ == ToolFormat::kMistral ? fmt::format("{:09x}", z >> 28) : fmt::format("call_{:016x}", z);
  }

  void read_marked(bool last, Output& out) {
    const size_t at = text_.find(marks_.open);
    if (at == std::string::npos) return content(text_.size() - (last ? 0 : held_back(text_, marks_.open)), out);
    if (at > 0) {  // what stands before, without the white space between
      const size_t end = std::string_view(text_).substr(0, at).find_last_not_of(kSpace);
      if (end != std::string::npos) content(end + 1, out);
      const size_t space = text_.find(marks_.open);
      gap_ = text_.substr(0, space);
      text_.erase(0, space);
    }
    if (format_ == ToolFormat::kMistral)
      read_mistral(last, out);
    else
      read_closed(last, out);
  }

  // Calls between two marks.
  void read_closed(bool last, Output& out) {
    const size_t begin = marks_.open.size();
    for (size_t from = begin;;) {
      const size_t found = text_.find(marks_.close, from);
      if (found == std::string::npos && !last) return;
      const size_t end = std::min(found, text_.size()), after = std::min(end + marks_.close.size(), text_.size());
      const std::string_view inner = std::string_view(text_).substr(begin, end - begin);
      auto list = format_ == ToolFormat::kHermes ? calls_of(inner) : deepseek_calls(inner, marks_);
      if (list) return calls(std::move(*list), after, out);
      if (found == std::string::npos || !ends_in_string(inner)) return content(after, out);
      from = after;  // the mark stands inside an argument
    }
  }

  // [TOOL_CALLS] and a list of calls, or a name, perhaps [ARGS], and the arguments.
  void read_mistral(bool last, Output& out) {
    const std::string_view text = text_;
    const size_t begin = skip_space(text, marks_.open.size());
    const bool list = begin < text.size() && text[begin] == '[';
    const size_t json = list ? begin : text.find('{', begin);
    const size_t end = json == std::string_view::npos ? json : json_end(text, json);
    const bool hopeless = json == std::string_view::npos && text.size() - begin > kLongestName;
    if (end == std::string_view::npos) return last || hopeless ? content(text.size(), out) : void();
    if (list) {
      auto found = calls_of(text.substr(begin, end - begin));
      return found ? calls(std::move(*found), end, out) : content(end, out);
    }
    std::string_view name = text.substr(begin, json - begin);
    for (const std::string_view mark : {kMistralArguments, kCallId})
      name = name.substr(0, std::min(name.find(mark), name.size()));
    auto arguments = arguments_of(text.substr(json, end - json));
    if (trimmed(name).empty() || !arguments) return content(end, out);
    calls({{{}, std::string(trimmed(name)), std::move(*arguments)}}, end, out);
  }

  bool known(const std::vector<ToolCall>& list) const {
    return std::all_of(list.begin(), list.end(), [&](const ToolCall& call) {
      return std::find(names_.begin(), names_.end(), call.name) != names_.end();
    });
  }

  // An answer that is nothing but calls.
  void read_plain(bool last, Output& out) {
    if (only_content_) return content(text_.size(), out);
    const std::string_view text = text_;
    size_t begin = skip_space(text, 0);
    const std::string_view start = text.substr(begin, kPythonTag.size());
    const bool python = start == kPythonTag;
    if (python) begin = skip_space(text, begin + kPythonTag.size());
    const bool open = begin == text.size() || (start.size() < kPythonTag.size() && kPythonTag.starts_with(start));
    if (open && !last) return;
    if (called_ && !open && (text[begin] == ';' || text[begin] == ',')) {
      text_.erase(0, begin + 1);
      return;
    }
    if (!open && (text[begin] == '{' || text[begin] == '[')) {
      const size_t end = json_end(text, begin);
      if (end == std::string_view::npos && !last) return;
      auto list = end == std::string_view::npos ? std::nullopt : calls_of(text.substr(begin, end - begin));
      if (list && known(*list)) return calls(std::move(*list), end, out);
    } else if (python) {
      if (!last) return;
      if (auto call = python_call(trimmed(text.substr(begin))); call && known({*call}))
        return calls({std::move(*call)}, text.size(), out);
    }
    only_content_ = true;
    content(text_.size(), out);
  }

  ToolFormat format_;
  ToolMarks marks_;
  std::vector<std::string> names_;
  uint64_t seed_;
  std::string text_;           // not told yet
  std::string gap_;            // white space before a mark at the start of text_: content, if that is no call
  bool only_content_ = false;  // of a format without marks: this is no call, nor is anything behind it
  bool called_ = false;        // the last thing told was a call
};

ToolCallParser::ToolCallParser(ToolFormat format, std::vector<std::string> tool_names, uint64_t seed)
    : impl_(std::make_unique<Impl>(format, std::move(tool_names), seed)) {}
ToolCallParser::~ToolCallParser() = default;
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;
ToolCallParser& ToolCallParser::operator=(ToolCallParser&&) noexcept = default;

ToolCallParser::Output ToolCallParser::push(std::string_view text) {
  return impl_->run(text, false);
}

ToolCallParser::Output ToolCallParser::finish() {
  return impl_->run({}, true);
}

}  // namespace godwit
