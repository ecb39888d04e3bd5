// The functions every template can call.
#include <algorithm>
#include <array>
#include <limits>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"

namespace godwit::jinja {
namespace {

Value make_range(Interpreter& in, const Args& raw) {
  Arguments args("range", raw, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; i++) args.integer(i, 0);
  auto part = [&](size_t i) { return args[i].as_int(); };
  Int start = args.given(1) ? part(0) : 0, stop = args.given(1) ? part(1) : part(0);
  Int step = args.given(2) ? part(2) : 1;
  if (step == 0) raise(ErrorCode::kBadData, "range: the step must not be zero");
  constexpr Int kMost = std::numeric_limits<int64_t>::max();
  for (Int value : {start, stop, step}) {
    if (value > kMost || value < -kMost) raise(ErrorCode::kExhausted, "range: a bound is too large");
  }
  Int count = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
  count = std::max<Int>(count, 0);
  if (count > in.heap().limits().max_range) {
    raise(ErrorCode::kExhausted, "range: {} items are more than the limit of {}", count, in.heap().limits().max_range);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; i++) items.push_back(Value::of(start + i * step));
  Value range = in.heap().seq(Flavor::kRange, std::move(items));
  range.seq->start = start;
  range.seq->stop = stop;
  range.seq->step = step;
  return range;
}

// dict(mapping or pairs, name=value, ...)
Value make_dict(Interpreter& in, const Args& args) {
  Value dict = in.heap().dict();
  if (args.positional.size() > 1) raise(ErrorCode::kBadData, "dict takes at most 1 argument");
  for (const Value& from : args.positional) {
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict->entries) in.heap().put(*dict.dict, key, value);
      continue;
    }
    for (const Value& pair : in.items_of(from)) {
      std::vector<Value> parts = in.items_of(pair);
      if (parts.size() != 2) raise(ErrorCode::kBadData, "dict needs pairs");
      in.heap().put(*dict.dict, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.named) in.heap().put(*dict.dict, name, value);
  return dict;
}

Value make_namespace(Interpreter& in, const Args& args) {
  return Value::of(make_dict(in, args).dict, Kind::kNamespace);
}

Value raise_exception(Interpreter& in, const Args& raw) {
  Arguments args("raise_exception", raw, {"message"}, 1);
  raise(ErrorCode::kInvalidArgument, "the template refuses this conversation: {}", to_str(in.heap(), args[0]));
}

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

int days_before_month(int year, int month) {
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return kBefore[month - 1] + (leap && month > 2);
}

// 0 is Sunday.
int weekday(const CivilTime& t) {
  int y = t.year - 1;
  return (y * 365 + y / 4 - y / 100 + y / 400 + days_before_month(t.year, t.month) + t.day) % 7;
}

std::string format_time(std::string_view format, const CivilTime& t) {
  std::string out;
  auto number = [&](int value, int width, bool bare, char fill = '0') {
    std::string digits = std::to_string(value);
    if (!bare && static_cast<int>(digits.size()) < width)
      digits.insert(0, static_cast<size_t>(width) - digits.size(), fill);
    out += digits;
  };
  for (size_t i = 0; i < format.size(); i++) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    bool bare = format[i + 1] == '-' && i + 2 < format.size();
    i += bare ? 2 : 1;
    std::string_view day = kDays[static_cast<size_t>(weekday(t))], month = kMonths[static_cast<size_t>(t.month - 1)];
    int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
    switch (format[i]) {
      case 'a':
        out += day.substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'b':
      case 'h':
        out += month.substr(0, 3);
        break;
      case 'B':
        out += month;
        break;
      case 'd':
        number(t.day, 2, bare);
        break;
      case 'e':
        number(t.day, 2, bare, ' ');
        break;
      case 'H':
        number(t.hour, 2, bare);
        break;
      case 'I':
        number(hour12, 2, bare);
        break;
      case 'j':
        number(days_before_month(t.year, t.month) + t.day, 3, bare);
        break;
      case 'm':
        number(t.month, 2, bare);
        break;
      case 'M':
        number(t.minute, 2, bare);
        break;
      case 'p':
        out += t.hour < 12 ? "AM" : "PM";
        break;
      case 'S':
        number(t.second, 2, bare);
        break;
      case 'w':
        number(weekday(t), 1, bare);
        break;
      case 'y':
        number(t.year % 100, 2, bare);
        break;
      case 'Y':
        number(t.year, 4, bare);
        break;
      case 'F':
        out += format_time("%Y-%m-%d", t);
        break;
      case 'T':
        out += format_time("%H:%M:%S", t);
        break;
      case 'D':
        out += format_time("%m/%d/%y", t);
        break;
      case '%':
        out += '%';
        break;
      default:
        raise(ErrorCode::kUnsupported, "strftime_now: %{} is not supported", format[i]);
    }
  }
  return out;
}

Value strftime_now(Interpreter& in, const Args& raw) {
  Arguments args("strftime_now", raw, {"format"}, 1);
  if (!in.options().now) raise(ErrorCode::kInvalidArgument, "strftime_now: the caller gave no time");
  const CivilTime& now = *in.options().now;
  bool sane = now.year >= 1 && now.year <= 9999 && now.month >= 1 && now.month <= 12 && now.day >= 1 && now.day <= 31;
  if (!sane) raise(ErrorCode::kInvalidArgument, "strftime_now: the time given is not a date");
  in.heap().work(args.text(0).size() * 16);
  return in.string(format_time(args.text(0), now));
}

constexpr Builtin kGlobals[] = {
    {"range", make_range},          {"dict", make_dict},
    {"namespace", make_namespace},  {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

const Builtin* find_global(std::string_view name) {
  auto it = std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const auto& g) { return g.name == name; });
  return it == std::end(kGlobals) ? nullptr : it;
}

}  // namespace godwit::jinja
