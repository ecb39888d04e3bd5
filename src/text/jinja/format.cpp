// Python's two ways to format: "..." % values and "...".format(values).
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ = or none
  char sign = 0;   // + or blank
  bool alternate = false;
  bool commas = false;
  int width = 0;
  int precision = -1;
  char type = 0;
};

int read_number(std::string_view text, size_t& pos) {
  int number = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
    number = number * 10 + (text[pos++] - '0');
    if (number > kMaxWidth) raise(ErrorCode::kExhausted, "a format asks for more than {} characters", kMaxWidth);
  }
  return number;
}

std::string pad(std::string text, const Spec& spec, char default_align, size_t sign_bytes = 0) {
  size_t length = count_characters(text), width = static_cast<size_t>(spec.width);
  if (length >= width) return text;
  size_t missing = width - length;
  char align = spec.align != 0 ? spec.align : default_align;
  auto filled = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; i++) out += spec.fill;
    return out;
  };
  if (align == '<') return text + filled(missing);
  if (align == '^') return filled(missing / 2) + text + filled(missing - missing / 2);
  if (align == '=') return text.substr(0, sign_bytes) + filled(missing) + text.substr(sign_bytes);
  return filled(missing) + text;
}

std::string with_commas(std::string digits) {
  size_t end = std::min(digits.find('.'), digits.size());
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

__extension__ typedef unsigned __int128 Unsigned;

// The bases of x, X, o and b are powers of two: take the bits from the top.
std::string digits_in_base(Unsigned magnitude, char type) {
  int bits = type == 'o' ? 3 : type == 'b' ? 1 : 4;
  std::string_view alphabet = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  for (int shift = 127 / bits * bits; shift >= 0; shift -= bits) {
    auto digit = static_cast<size_t>(magnitude >> shift) & ((size_t{1} << bits) - 1);
    if (digit != 0 || !digits.empty() || shift == 0) digits += alphabet[digit];
  }
  return digits;
}

std::string format_number(const Value& v, const Spec& spec) {
  std::string digits, prefix;
  bool negative = false;
  char type = spec.type;
  if (v.is_integral() && (type == 0 || std::string_view("dxXob").find(type) != std::string_view::npos)) {
    Int i = v.as_int();
    negative = i < 0;
    Unsigned magnitude = negative ? Unsigned{0} - static_cast<Unsigned>(i) : static_cast<Unsigned>(i);
    bool in_base = type == 'x' || type == 'X' || type == 'o' || type == 'b';
    digits = in_base ? digits_in_base(magnitude, type) : fmt::format("{}", magnitude);
    if (in_base && spec.alternate) prefix = {'0', type};
  } else {
    double d = v.as_double();
    negative = std::signbit(d) && !std::isnan(d);
    d = std::fabs(d);
    int precision = spec.precision < 0 ? 6 : spec.precision;
    if (type == 0) {
      digits = spec.precision < 0 ? float_repr(d) : fmt::format("{:.{}g}", d, std::max(precision, 1));
    } else if (type == '%') {
      digits = fmt::format("{:.{}f}%", d * 100, precision);
    } else {
      digits = fmt::format(fmt::runtime(fmt::format("{{:.{}{}}}", precision, type)), d);
    }
  }
  if (spec.commas) digits = with_commas(std::move(digits));
  char mark = negative ? '-' : spec.sign;
  std::string sign(mark != 0 ? 1 : 0, mark);
  sign += prefix;
  return pad(sign + digits, spec, '>', sign.size());
}

std::string cut(std::string text, int precision) {
  if (precision < 0) return text;
  std::vector<std::string_view> characters = split_characters(text);
  if (characters.size() <= static_cast<size_t>(precision)) return text;
  return text.substr(0, static_cast<size_t>(characters[static_cast<size_t>(precision)].data() - text.data()));
}

bool is_float_type(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t pos = 0;
  if (!text.empty()) {
    size_t first = decode_at(text, 0).bytes;
    if (first < text.size() && std::string_view("<>^=").find(text[first]) != std::string_view::npos) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      pos = first + 1;
    } else if (std::string_view("<>^=").find(text[0]) != std::string_view::npos) {
      spec.align = text[0];
      pos = 1;
    }
  }
  auto at = [&](std::string_view any) { return pos < text.size() && any.find(text[pos]) != std::string_view::npos; };
  if (at("+- ")) {
    spec.sign = text[pos] == '-' ? '\0' : text[pos];
    pos++;
  }
  if (at("#")) spec.alternate = ++pos > 0;
  if (at("0") && spec.align == 0) {
    spec.fill.assign(1, '0');
    spec.align = '=';
    pos++;
  }
  spec.width = read_number(text, pos);
  if (at(",")) spec.commas = ++pos > 0;
  if (at(".")) {
    pos++;
    if (!at("0123456789")) raise(ErrorCode::kBadData, "format specifier '{}' lacks a precision", text);
    spec.precision = read_number(text, pos);
  }
  if (at("sdxXobeEfFgG%")) spec.type = text[pos++];
  if (pos != text.size()) raise(ErrorCode::kUnsupported, "format specifier '{}' is not supported", text);
  return spec;
}

std::string format_value(Heap& heap, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return to_str(heap, v);
  Spec spec = parse_spec(spec_text);
  if (v.is(Kind::kString) && (spec.type == 0 || spec.type == 's') && spec.align != '=') {
    return pad(cut(v.str(), spec.precision), spec, '<');
  }
  bool number_type = spec.type == 0 || is_float_type(spec.type) || (v.is_integral() && spec.type != 's');
  if (!v.is_number() || !number_type || (v.is_integral() && !is_float_type(spec.type) && spec.precision >= 0)) {
    raise(ErrorCode::kBadData, "format specifier '{}' does not fit a {}", spec_text, type_name(v));
  }
  return format_number(v, spec);
}

}  // namespace

std::string format_percent(Heap& heap, std::string_view format, const Value& values) {
  bool many = values.is(Kind::kSeq) && values.seq->is_tuple();
  size_t next = 0;
  auto take = [&]() -> const Value& {
    size_t count = many ? values.seq->items.size() : 1;
    if (next >= count) raise(ErrorCode::kBadData, "not enough arguments for format string");
    const Value& v = many ? values.seq->items[next] : values;
    next++;
    return v;
  };
  std::string out;
  bool by_name = false;
  for (size_t pos = 0; pos < format.size();) {
    if (format[pos] != '%') {
      out += format[pos++];
      continue;
    }
    pos++;
    const Value* named = nullptr;
    if (pos < format.size() && format[pos] == '(') {
      size_t close = format.find(')', pos);
      if (close == std::string_view::npos) raise(ErrorCode::kBadData, "incomplete format key");
      if (!values.is(Kind::kDict)) raise(ErrorCode::kBadData, "format requires a mapping");
      named = heap.find(*values.dict, format.substr(pos + 1, close - pos - 1));
      if (named == nullptr) raise(ErrorCode::kBadData, "the format's mapping lacks a key");
      by_name = true;
      pos = close + 1;
    }
    Spec spec;
    for (; pos < format.size(); pos++) {
      char c = format[pos];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || c == ' ') {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0' && spec.align != '<') {
        spec.fill.assign(1, '0');
        spec.align = '=';
      } else {
        break;
      }
    }
    spec.width = read_number(format, pos);
    if (pos < format.size() && format[pos] == '.') spec.precision = read_number(format, ++pos);
    if (pos >= format.size()) raise(ErrorCode::kBadData, "incomplete format");
    spec.type = format[pos++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    const Value& v = named != nullptr ? *named : take();
    require_defined(v.is(Kind::kUndefined) && spec.type == 's' ? Value::none() : v);
    heap.step(16 + spec.width / 8);
    if (spec.type == 's' || spec.type == 'r') {
      if (spec.align == '=') {
        spec.align = 0;
        spec.fill.assign(1, ' ');
      }
      out += pad(cut(spec.type == 's' ? to_str(heap, v) : to_repr(heap, v), spec.precision), spec, '>');
    } else if (std::string_view("diuxXoeEfFgG").find(spec.type) != std::string_view::npos) {
      if (!v.is_number()) raise(ErrorCode::kBadData, "%{} needs a number, not {}", spec.type, type_name(v));
      bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
      bool whole = decimal || !is_float_type(spec.type);
      if (decimal) spec.type = 'd';
      if (whole && v.is(Kind::kFloat) && (!decimal || !(std::fabs(v.real) < 1e30))) {
        raise(ErrorCode::kBadData, "%{} does not fit the number {}", spec.type, float_repr(v.real));
      }
      out += format_number(whole && v.is(Kind::kFloat) ? Value::of(static_cast<Int>(v.real)) : v, spec);
    } else {
      raise(ErrorCode::kUnsupported, "the format %{} is not supported", spec.type);
    }
    if (out.size() > heap.limits().max_memory_bytes) heap.work(out.size());
  }
  if (many && next < values.seq->items.size()) raise(ErrorCode::kBadData, "not all arguments converted by format");
  bool ignorable = values.is(Kind::kDict) || values.is(Kind::kUndefined) || (values.is(Kind::kSeq) && !many);
  if (!many && next == 0 && !by_name && !ignorable) {
    raise(ErrorCode::kBadData, "not all arguments converted by format");
  }
  return out;
}

std::string format_braces(Interpreter& in, std::string_view format, const Args& args) {
  std::string out;
  size_t next = 0;
  for (size_t pos = 0; pos < format.size();) {
    char c = format[pos];
    if (c != '{' && c != '}') {
      out += c;
      pos++;
      continue;
    }
    if (pos + 1 < format.size() && format[pos + 1] == c) {
      out += c;
      pos += 2;
      continue;
    }
    size_t close = format.find('}', pos);
    if (c == '}' || close == std::string_view::npos) raise(ErrorCode::kBadData, "a format string has a single '{}'", c);
    std::string_view field = format.substr(pos + 1, close - pos - 1), spec;
    pos = close + 1;
    if (size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    if (spec.find('{') != std::string_view::npos || field.find_first_of("!.[{") != std::string_view::npos) {
      raise(ErrorCode::kUnsupported, "the format field '{{{}}}' is not supported", field);
    }
    const Value* v = nullptr;
    bool digits = std::all_of(field.begin(), field.end(), [](char d) { return d >= '0' && d <= '9'; });
    if (digits) {
      size_t at = 0;
      size_t index = field.empty() ? next++ : static_cast<size_t>(read_number(field, at));
      if (index < args.positional.size()) v = &args.positional[index];
    } else {
      for (const auto& [name, value] : args.named) {
        if (name == field) v = &value;
      }
    }
    if (v == nullptr) raise(ErrorCode::kBadData, "the format field '{{{}}}' has no value", field);
    in.heap().step(16);
    out += format_value(in.heap(), *v, spec);
    if (out.size() > in.heap().limits().max_memory_bytes) in.heap().work(out.size());
  }
  return out;
}

}  // namespace godwit::jinja
