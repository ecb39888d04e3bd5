#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

// What a filter on text sees: the string itself, or str() of anything else.
Value soft_string(Interpreter& in, const Value& v) {
  return v.is(Kind::kString) ? v : in.string(to_str(in.heap(), v));
}

Value do_trim(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("trim", raw, {"chars"});
  Value text = soft_string(in, self);
  in.heap().work(text.str().size());
  std::optional<std::string> chars;
  if (!args.none(0)) chars = args.text(0);
  return in.string(std::string(strip(text.str(), chars, Side::kBoth)), text.markup);
}

template <std::string (*convert)(std::string_view)>
Value do_convert(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("a case filter", raw, {});
  Value text = soft_string(in, self);
  in.heap().work(text.str().size());
  return in.string(convert(text.str()), text.markup);
}

// Unlike str.title: words begin after blanks, hyphens and opening brackets only.
std::string title_words(std::string_view text) {
  std::string out;
  bool word_start = true;
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    std::string_view bytes = text.substr(pos, c.bytes);
    out += word_start ? to_upper(bytes) : to_lower(bytes);
    word_start = is_space(c.code) || std::string_view("-({[<").find(bytes) != std::string_view::npos;
    pos += c.bytes;
  }
  return out;
}

Value do_string(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("string", raw, {});
  return soft_string(in, self);
}

Value do_safe(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("safe", raw, {});
  Value text = soft_string(in, self);
  text.markup = true;
  return text;
}

Value do_escape(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("escape", raw, {});
  if (self.is(Kind::kString) && self.markup) return self;
  return in.string(escape_html(to_str(in.heap(), self)), true);
}

Value do_replace(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("replace", raw, {"old", "new", "count"}, 2);
  Heap& heap = in.heap();
  int64_t most = args.none(2) ? -1 : args.integer(2, -1);
  return in.string(replace(heap, to_str(heap, self), to_str(heap, args[0]), to_str(heap, args[1]), most));
}

Value do_indent(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("indent", raw, {"width", "first", "blank"});
  require_defined(self);
  if (!self.is(Kind::kString)) raise(ErrorCode::kBadData, "indent needs a string, not {}", type_name(self));
  std::string blanks;
  if (args.given(0) && args[0].is(Kind::kString)) {
    blanks = args[0].str();
  } else {
    size_t width = static_cast<size_t>(std::max<int64_t>(args.integer(0, 4), 0));
    in.heap().work(width);
    blanks.assign(width, ' ');
  }
  std::string text = self.str() + "\n";
  std::vector<std::string_view> lines = split_lines(text, false);
  bool indent_blank = args.flag(2, false);
  std::string out = args.flag(1, false) ? blanks : "";
  for (size_t i = 0; i < lines.size(); i++) {
    if (i > 0) out += "\n";
    if (i > 0 && (indent_blank || !lines[i].empty())) out += blanks;
    out += lines[i];
    if (out.size() > in.heap().limits().max_memory_bytes) in.heap().work(out.size());
  }
  return in.string(std::move(out), self.markup);
}

Value do_tojson(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("tojson", raw, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = args.flag(0, false);
  style.sort_keys = args.flag(3, false);
  if (!args.none(1)) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    if (args[1].is(Kind::kString)) {
      style.indent = args[1].str();
    } else {
      int64_t width = std::max<int64_t>(args.integer(1, 0), 0);
      if (width > 1000) raise(ErrorCode::kExhausted, "tojson: an indent of {} is too large", width);
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (!args.none(2)) {
    std::vector<Value> parts = in.items_of(args[2]);
    if (parts.size() != 2 || !parts[0].is(Kind::kString) || !parts[1].is(Kind::kString)) {
      raise(ErrorCode::kBadData, "tojson: separators must be two strings");
    }
    style.item_separator = parts[0].str();
    style.key_separator = parts[1].str();
  }
  return in.string(to_json(in.heap(), self, style));
}

Value do_format(Interpreter& in, const Value& self, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    raise(ErrorCode::kBadData, "format takes positional or named arguments, not both");
  }
  Value values = args.named.empty() ? in.heap().tuple(args.positional) : in.heap().dict();
  for (const auto& [name, value] : args.named) in.heap().put(*values.dict, name, value);
  Value text = soft_string(in, self);
  return in.string(format_percent(in.heap(), text.str(), values), text.markup);
}

Value do_wordcount(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("wordcount", raw, {});
  Value text = soft_string(in, self);
  if (!text.text->ascii) raise(ErrorCode::kUnsupported, "wordcount is supported for ASCII text only");
  in.heap().work(text.str().size());
  int64_t count = 0;
  bool inside = false;
  for (char c : text.str()) {
    bool word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
    count += word && !inside;
    inside = word;
  }
  return Value::of(count);
}

Value do_center(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("center", raw, {"width"});
  Args width{{Value::of(args.integer(0, 80))}, {}};
  return find_string_method("center")->call(in, soft_string(in, self), width);
}

constexpr FilterEntry kFilters[] = {
    {"trim", do_trim},
    {"upper", do_convert<to_upper>},
    {"lower", do_convert<to_lower>},
    {"title", do_convert<title_words>},
    {"capitalize", do_convert<to_capitalized>},
    {"string", do_string},
    {"safe", do_safe},
    {"escape", do_escape},
    {"e", do_escape},
    {"replace", do_replace},
    {"indent", do_indent},
    {"tojson", do_tojson},
    {"format", do_format},
    {"wordcount", do_wordcount},
    {"center", do_center},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kFilters;
}

}  // namespace godwit::jinja
