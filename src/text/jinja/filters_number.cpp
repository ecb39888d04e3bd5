#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/unicode.h"

namespace godwit::jinja {
namespace {

// The digits of a Python number literal without blanks around it and underscores inside; nothing if malformed.
std::optional<std::string> clean_number(std::string_view text) {
  text = strip_right(strip_left(text));
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    auto alnum = [&](size_t at) { return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0; };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<Int> parse_integer(std::string_view raw, int64_t base) {
  std::optional<std::string> text = clean_number(raw);
  if (!text) return std::nullopt;
  size_t pos = 0;
  bool negative = (*text)[0] == '-';
  if (negative || (*text)[0] == '+') pos++;
  if (text->size() > pos + 1 && (*text)[pos] == '0') {
    char mark = static_cast<char>((*text)[pos + 1] | 0x20);
    int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      pos += 2;
    }
  }
  if (base == 0) base = 10;
  if (pos >= text->size()) return std::nullopt;
  Int value = 0;
  for (; pos < text->size(); pos++) {
    char c = (*text)[pos], lower = static_cast<char>(c | 0x20);
    int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value)) {
      raise(ErrorCode::kExhausted, "int: the number is too large");
    }
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view raw) {
  std::optional<std::string> text = clean_number(raw);
  if (!text) return std::nullopt;
  std::string_view digits = *text;
  bool negative = digits[0] == '-';
  if (negative || digits[0] == '+') digits.remove_prefix(1);
  std::string lower = to_lower(digits);
  double value = 0;
  if (lower == "nan") {
    value = std::nan("");
  } else if (lower == "inf" || lower == "infinity") {
    value = INFINITY;
  } else {
    if (lower.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
    auto [end, error] = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (end != lower.data() + lower.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) value = std::strtod(lower.c_str(), nullptr);
  }
  return negative ? -value : value;
}

Value do_int(Interpreter&, const Value& self, const Args& raw) {
  Arguments args("int", raw, {"default", "base"});
  Value otherwise = args.value(0, Value::of(0));
  int64_t base = args.integer(1, 10);
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  if (self.is_integral()) return Value::of(self.as_int());
  require_defined(self);
  std::optional<double> real;
  if (self.is(Kind::kString)) {
    if (std::optional<Int> value = parse_integer(self.str(), base)) return Value::of(*value);
    real = parse_float(self.str());
  } else if (self.is(Kind::kFloat)) {
    real = self.real;
    if (std::isinf(*real)) raise(ErrorCode::kBadData, "int: cannot convert infinity");
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  if (std::fabs(*real) > 1e38) raise(ErrorCode::kExhausted, "int: the number is too large");
  return Value::of(static_cast<Int>(*real));
}

Value do_float(Interpreter&, const Value& self, const Args& raw) {
  Arguments args("float", raw, {"default"});
  if (self.is_number()) return Value::of(self.as_double());
  require_defined(self);
  if (self.is(Kind::kString)) {
    if (std::optional<double> value = parse_float(self.str())) return Value::of(*value);
  }
  return args.value(0, Value::of(0.0));
}

Value do_abs(Interpreter&, const Value& self, const Args& raw) {
  Arguments args("abs", raw, {});
  require_defined(self);
  if (!self.is_number()) raise(ErrorCode::kBadData, "abs needs a number, not {}", type_name(self));
  if (self.is(Kind::kFloat)) return Value::of(std::fabs(self.real));
  return self.as_int() < 0 ? negate(self) : Value::of(self.as_int());
}

// Rounds half to even on the exact binary value, as Python does.
double round_to(double value, int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 400) return value;
  if (digits < -400) return std::copysign(0.0, value);
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
  double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Value do_round(Interpreter&, const Value& self, const Args& raw) {
  Arguments args("round", raw, {"precision", "method"});
  require_defined(self);
  if (!self.is_number()) raise(ErrorCode::kBadData, "round needs a number, not {}", type_name(self));
  int64_t precision = args.integer(0, 0);
  std::string method = args.text(1, "common");
  if (method == "common") {
    if (self.is(Kind::kFloat)) return Value::of(round_to(self.real, precision));
    if (precision >= 0) return Value::of(self.as_int());
    raise(ErrorCode::kUnsupported, "round of an integer to a negative precision is not supported");
  }
  if (method != "ceil" && method != "floor") raise(ErrorCode::kBadData, "round: method must be common, ceil or floor");
  double scale = std::pow(10.0, static_cast<double>(precision)), scaled = self.as_double() * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr FilterEntry kFilters[] = {
    {"int", do_int},
    {"float", do_float},
    {"abs", do_abs},
    {"round", do_round},
};

}  // namespace

std::span<const FilterEntry> number_filters() {
  return kFilters;
}

}  // namespace godwit::jinja
