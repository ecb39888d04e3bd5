#include <algorithm>
#include <limits>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

std::optional<std::string> optional_chars(const Arguments& args) {
  if (args.none(0)) return std::nullopt;
  return args.text(0);
}

template <Side side>
Value do_strip(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("strip", raw, {"chars"});
  in.heap().work(self.str().size());
  return in.string(std::string(strip(self.str(), optional_chars(args), side)), self.markup);
}

template <std::string (*convert)(std::string_view)>
Value do_convert(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("a case method", raw, {});
  in.heap().work(self.str().size());
  return in.string(convert(self.str()), self.markup);
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::string_view c : split_characters(text)) out += is_upper(decode_at(c, 0).code) ? to_lower(c) : to_upper(c);
  return out;
}

Value as_list(Interpreter& in, const std::vector<std::string_view>& parts, bool markup) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(in.string(std::string(part), markup));
  return in.heap().list(std::move(items));
}

template <bool from_right>
Value do_split(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("split", raw, {"sep", "maxsplit"});
  int64_t most = args.integer(1, -1);
  in.heap().work(self.str().size());
  if (args.none(0)) return as_list(in, split_blanks(self.str(), most, from_right), self.markup);
  if (args.text(0).empty()) raise(ErrorCode::kBadData, "split: empty separator");
  return as_list(in, split_on(self.str(), args.text(0), most, from_right), self.markup);
}

Value do_splitlines(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("splitlines", raw, {"keepends"});
  in.heap().work(self.str().size());
  return as_list(in, split_lines(self.str(), args.flag(0, false)), self.markup);
}

// The part of the string between optional start and end characters, as find, count and startswith take them; nothing if
// the start lies past the end. `offset` is the part's first character.
std::optional<std::string_view> window(const Value& self, const Arguments& args, size_t first, int64_t& offset) {
  offset = 0;
  if (args.none(first) && args.none(first + 1)) return self.str();
  int64_t length = static_cast<int64_t>(length_of(self));
  auto bound = [&](size_t i, int64_t otherwise) {
    if (args.none(i)) return otherwise;
    int64_t at = args.integer(i, 0);
    return std::max<int64_t>(at < 0 ? at + length : at, 0);
  };
  int64_t start = bound(first, 0), end = std::min(bound(first + 1, length), length);
  if (start > end) return std::nullopt;
  offset = start;
  std::string_view text = self.str();
  if (self.text->ascii) return text.substr(static_cast<size_t>(start), static_cast<size_t>(end - start));
  std::vector<std::string_view> characters = split_characters(text);
  size_t bytes[2];
  for (int i = 0; i < 2; i++) {
    size_t at = static_cast<size_t>(i == 0 ? start : end);
    bytes[i] = at < characters.size() ? static_cast<size_t>(characters[at].data() - text.data()) : text.size();
  }
  return text.substr(bytes[0], bytes[1] - bytes[0]);
}

template <bool at_end>
Value do_starts(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args(at_end ? "endswith" : "startswith", raw, {"affix", "start", "end"}, 1);
  int64_t offset;
  std::optional<std::string_view> text = window(self, args, 1, offset);
  std::vector<Value> affixes{args[0]};
  if (args[0].is(Kind::kSeq) && args[0].seq->is_tuple()) affixes = args[0].seq->items;
  in.heap().step(static_cast<int64_t>(affixes.size()));
  for (const Value& affix : affixes) {
    require_defined(affix);
    if (!affix.is(Kind::kString)) raise(ErrorCode::kBadData, "startswith and endswith need strings");
    if (text && (at_end ? text->ends_with(affix.str()) : text->starts_with(affix.str()))) return Value::of(true);
  }
  return Value::of(false);
}

template <bool from_right, bool must_exist>
Value do_find(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("find", raw, {"sub", "start", "end"}, 1);
  in.heap().work(self.str().size());
  int64_t offset;
  std::optional<std::string_view> text = window(self, args, 1, offset);
  size_t found = std::string_view::npos;
  if (text) found = from_right ? text->rfind(args.text(0)) : text->find(args.text(0));
  if (found != std::string_view::npos) {
    return Value::of(offset + static_cast<int64_t>(count_characters(text->substr(0, found))));
  }
  if (must_exist) raise(ErrorCode::kBadData, "index: substring not found");
  return Value::of(-1);
}

Value do_count(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("count", raw, {"sub", "start", "end"}, 1);
  in.heap().work(self.str().size());
  int64_t offset;
  std::optional<std::string_view> text = window(self, args, 1, offset);
  const std::string& sub = args.text(0);
  if (!text) return Value::of(0);
  if (sub.empty()) return Value::of(count_characters(*text) + 1);
  int64_t count = 0;
  for (size_t at = text->find(sub); at != std::string_view::npos; at = text->find(sub, at + sub.size())) count++;
  return Value::of(count);
}

Value do_replace(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("replace", raw, {"old", "new", "count"}, 2);
  std::string to = self.markup && !args[1].markup ? escape_html(args.text(1)) : args.text(1);
  return in.string(replace(in.heap(), self.str(), args.text(0), to, args.integer(2, -1)), self.markup);
}

Value do_join(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("join", raw, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : in.items_of(args[0])) {
    if (!item.is(Kind::kString)) raise(ErrorCode::kBadData, "join needs strings, found {}", type_name(item));
    if (!first) out += self.str();
    first = false;
    out += self.markup && !item.markup ? escape_html(item.str()) : item.str();
    if (out.size() > in.heap().limits().max_memory_bytes) in.heap().work(out.size());
  }
  return in.string(std::move(out), self.markup);
}

Value do_format(Interpreter& in, const Value& self, const Args& raw) {
  if (self.markup) raise(ErrorCode::kUnsupported, "format on a safe string is not supported");
  return in.string(format_braces(in, self.str(), raw));
}

template <bool suffix>
Value do_remove_affix(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("removeprefix", raw, {"affix"}, 1);
  std::string_view text = self.str(), affix = args.text(0);
  in.heap().work(text.size());
  if (!suffix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (suffix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return in.string(std::string(text), self.markup);
}

template <bool from_right>
Value do_partition(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("partition", raw, {"sep"}, 1);
  const std::string& sep = args.text(0);
  if (sep.empty()) raise(ErrorCode::kBadData, "partition: empty separator");
  const std::string& text = self.str();
  size_t found = from_right ? text.rfind(sep) : text.find(sep);
  bool hit = found != std::string::npos;
  std::string head = hit ? text.substr(0, found) : from_right ? "" : text;
  std::string tail = hit ? text.substr(found + sep.size()) : from_right ? text : "";
  return in.heap().tuple({in.string(head), in.string(hit ? sep : ""), in.string(tail)});
}

bool is_ascii_digit(uint32_t c) {
  return c >= '0' && c <= '9';
}
bool is_ascii_letter(uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_ascii_alnum(uint32_t c) {
  return is_ascii_digit(c) || is_ascii_letter(c);
}

// True if there is a character and all satisfy `ok`.
template <bool (*ok)(uint32_t), bool ascii_only>
Value do_all(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("a character test", raw, {});
  if (ascii_only && !self.text->ascii) {
    raise(ErrorCode::kUnsupported, "isalpha, isalnum and isdigit are supported for ASCII text only");
  }
  in.heap().work(self.str().size());
  for (std::string_view c : split_characters(self.str())) {
    if (!ok(decode_at(c, 0).code)) return Value::of(false);
  }
  return Value::of(!self.str().empty());
}

template <bool upper>
Value do_is_case(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("a character test", raw, {});
  in.heap().work(self.str().size());
  bool any = false;
  for (std::string_view c : split_characters(self.str())) {
    uint32_t code = decode_at(c, 0).code;
    if (upper ? is_lower(code) : is_upper(code)) return Value::of(false);
    any |= is_cased(code);
  }
  return Value::of(any);
}

template <char align>
Value do_justify(Interpreter& in, const Value& self, const Args& raw) {
  Arguments args("ljust, rjust, center or zfill", raw, {"width", "fillchar"}, 1);
  std::string fill = align == '0' ? "0" : args.text(1, " ");
  if (count_characters(fill) != 1) raise(ErrorCode::kBadData, "the fill must be one character");
  int64_t length = static_cast<int64_t>(length_of(self)), width = args.integer(0, 0);
  int64_t missing = std::max<int64_t>(width - length, 0);
  in.heap().work(static_cast<size_t>(missing) * fill.size());
  int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 + (missing & width & 1) : missing;
  std::string out, text = self.str();
  if (align == '0' && !text.empty() && (text[0] == '-' || text[0] == '+')) {
    out += text[0];
    text.erase(0, 1);
  }
  for (int64_t i = 0; i < left; i++) out += fill;
  out += text;
  for (int64_t i = left; i < missing; i++) out += fill;
  return in.string(std::move(out), self.markup);
}

constexpr MethodEntry kMethods[] = {
    {"strip", do_strip<Side::kBoth>},
    {"lstrip", do_strip<Side::kLeft>},
    {"rstrip", do_strip<Side::kRight>},
    {"split", do_split<false>},
    {"rsplit", do_split<true>},
    {"splitlines", do_splitlines},
    {"startswith", do_starts<false>},
    {"endswith", do_starts<true>},
    {"upper", do_convert<to_upper>},
    {"lower", do_convert<to_lower>},
    {"title", do_convert<to_title>},
    {"capitalize", do_convert<to_capitalized>},
    {"swapcase", do_convert<swap_case>},
    {"replace", do_replace},
    {"join", do_join},
    {"format", do_format},
    {"find", do_find<false, false>},
    {"rfind", do_find<true, false>},
    {"index", do_find<false, true>},
    {"rindex", do_find<true, true>},
    {"count", do_count},
    {"removeprefix", do_remove_affix<false>},
    {"removesuffix", do_remove_affix<true>},
    {"partition", do_partition<false>},
    {"rpartition", do_partition<true>},
    {"isspace", do_all<is_space, false>},
    {"isdigit", do_all<is_ascii_digit, true>},
    {"isdecimal", do_all<is_ascii_digit, true>},
    {"isnumeric", do_all<is_ascii_digit, true>},
    {"isalpha", do_all<is_ascii_letter, true>},
    {"isalnum", do_all<is_ascii_alnum, true>},
    {"isupper", do_is_case<true>},
    {"islower", do_is_case<false>},
    {"ljust", do_justify<'<'>},
    {"rjust", do_justify<'>'>},
    {"center", do_justify<'^'>},
    {"zfill", do_justify<'0'>},
};

}  // namespace

const MethodEntry* find_string_method(std::string_view name) {
  auto it = std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& m) { return m.name == name; });
  return it == std::end(kMethods) ? nullptr : it;
}

}  // namespace godwit::jinja
