// Arithmetic and comparison with Python's types and signs.
#include <cmath>

#include "text/jinja/interpreter.h"

namespace godwit::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void bad_operands(Op op, const Value& a, const Value& b) {
  raise(ErrorCode::kBadData, "unsupported operand types for {}: '{}' and '{}'", kSymbols[static_cast<int>(op)],
        type_name(a), type_name(b));
}

[[noreturn]] void overflow() {
  raise(ErrorCode::kExhausted, "a number becomes too large");
}
[[noreturn]] void zero_division() {
  raise(ErrorCode::kBadData, "division by zero");
}

Int floor_div(Int a, Int b) {
  if (b == 0) zero_division();
  if (b == -1) {
    Int negated;
    if (__builtin_sub_overflow(Int{0}, a, &negated)) overflow();
    return negated;
  }
  Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integer_op(Op op, Int a, Int b) {
  Int result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kSub:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kMul:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::of(result);
    case Op::kDiv:
      if (b == 0) zero_division();
      return Value::of(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDiv:
      return Value::of(floor_div(a, b));
    case Op::kMod:
      if (b == -1) return Value::of(Int{0});
      return Value::of(a - floor_div(a, b) * b);
    default:
      if (b >= 0) return Value::of(power(a, b));
      if (a == 0) zero_division();
      return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Value float_op(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::of(a + b);
    case Op::kSub:
      return Value::of(a - b);
    case Op::kMul:
      return Value::of(a * b);
    case Op::kDiv:
      if (b == 0) zero_division();
      return Value::of(a / b);
    case Op::kFloorDiv:
    case Op::kMod: {
      if (b == 0) zero_division();
      double rest = std::fmod(a, b), quotient = (a - rest) / b;
      if (rest == 0) {
        rest = std::copysign(0.0, b);
      } else if ((rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      }
      if (op == Op::kMod) return Value::of(rest);
      if (quotient == 0) return Value::of(std::copysign(0.0, a / b));
      double floored = std::floor(quotient);
      return Value::of(quotient - floored > 0.5 ? floored + 1 : floored);
    }
    default:
      if (a == 0 && b < 0) zero_division();
      if (a < 0 && std::floor(b) != b && std::isfinite(b)) {
        raise(ErrorCode::kUnsupported, "complex numbers are not supported");
      }
      if (std::isinf(std::pow(a, b)) && std::isfinite(a) && std::isfinite(b)) overflow();
      return Value::of(std::pow(a, b));
  }
}

Value join_strings(Heap& heap, const Value& a, const Value& b) {
  heap.work(a.str().size() + b.str().size());
  bool markup = a.markup || b.markup;
  std::string text = markup && !a.markup ? escape_html(a.str()) : a.str();
  text += markup && !b.markup ? escape_html(b.str()) : b.str();
  return heap.string(std::move(text), markup);
}

Value repeat(Heap& heap, const Value& what, const Value& times) {
  Int count = times.as_int() < 0 ? 0 : times.as_int();
  Int size = static_cast<Int>(what.is(Kind::kString) ? what.str().size() : what.seq->items.size() * sizeof(Value));
  Int limit = static_cast<Int>(heap.limits().max_memory_bytes);
  if (size == 0) count = 0;
  if (count > limit || size * count > limit) {
    raise(ErrorCode::kExhausted, "a repetition makes more than {} bytes", heap.limits().max_memory_bytes);
  }
  heap.work(static_cast<size_t>(size * count));
  if (what.is(Kind::kString)) {
    std::string text;
    text.reserve(static_cast<size_t>(size * count));
    for (Int i = 0; i < count; i++) text += what.str();
    return heap.string(std::move(text), what.markup);
  }
  std::vector<Value> items;
  for (Int i = 0; i < count; i++) items.insert(items.end(), what.seq->items.begin(), what.seq->items.end());
  return heap.seq(what.seq->is_tuple() ? Flavor::kTuple : Flavor::kList, std::move(items));
}

bool repeatable(const Value& v) {
  return v.is(Kind::kString) || (v.is(Kind::kSeq) && (v.seq->flavor == Flavor::kList || v.seq->is_tuple()));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value binary(Heap& heap, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_op(op, a.as_int(), b.as_int());
    return float_op(op, a.as_double(), b.as_double());
  }
  if (op == Op::kMod && a.is(Kind::kString)) {
    return heap.string(format_percent(heap, a.str(), b), a.markup);
  }
  require_defined(a);
  require_defined(b);
  if (op == Op::kAdd) {
    if (a.is(Kind::kString) && b.is(Kind::kString)) return join_strings(heap, a, b);
    if (a.is(Kind::kSeq) && b.is(Kind::kSeq) && repeatable(a) && repeatable(b) &&
        a.seq->is_tuple() == b.seq->is_tuple()) {
      std::vector<Value> items = a.seq->items;
      items.insert(items.end(), b.seq->items.begin(), b.seq->items.end());
      return heap.seq(a.seq->is_tuple() ? Flavor::kTuple : Flavor::kList, std::move(items));
    }
  }
  if (op == Op::kMul && repeatable(a) && b.is_integral()) return repeat(heap, a, b);
  if (op == Op::kMul && repeatable(b) && a.is_integral()) return repeat(heap, b, a);
  bad_operands(op, a, b);
}

Value negate(const Value& v) {
  require_defined(v);
  if (v.is(Kind::kFloat)) return Value::of(-v.real);
  if (!v.is_integral()) raise(ErrorCode::kBadData, "bad operand type for unary -: '{}'", type_name(v));
  Int result;
  if (__builtin_sub_overflow(Int{0}, v.as_int(), &result)) overflow();
  return Value::of(result);
}

bool compare(Heap& heap, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return same(heap, a, b);
    case Op::kNe:
      return !same(heap, a, b);
    case Op::kIn:
      return contains(heap, b, a);
    case Op::kNotIn:
      return !contains(heap, b, a);
    case Op::kLt:
      return less(heap, a, b);
    case Op::kGt:
      return less(heap, b, a);
    // Not the negation of the strict order: with NaN both are false.
    case Op::kLe:
      return less(heap, a, b) || same(heap, a, b);
    default:
      return less(heap, b, a) || same(heap, a, b);
  }
}

}  // namespace godwit::jinja
