// What may follow `is`.
#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace godwit::jinja {
namespace {

struct TestEntry {
  std::string_view name;
  TestFn call;
};

template <bool (*ok)(const Value&)>
bool check(Interpreter&, const Value& v, const Args& raw) {
  Arguments args("the test", raw, {});
  return ok(v);
}

bool is_defined(const Value& v) {
  return !v.is(Kind::kUndefined);
}
bool is_undefined(const Value& v) {
  return v.is(Kind::kUndefined);
}
bool is_none(const Value& v) {
  return v.is(Kind::kNone);
}
bool is_boolean(const Value& v) {
  return v.is(Kind::kBool);
}
bool is_true(const Value& v) {
  return v.is(Kind::kBool) && v.boolean;
}
bool is_false(const Value& v) {
  return v.is(Kind::kBool) && !v.boolean;
}
bool is_integer(const Value& v) {
  return v.is(Kind::kInt);
}
bool is_float(const Value& v) {
  return v.is(Kind::kFloat);
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is(Kind::kString);
}
bool is_mapping(const Value& v) {
  return v.is(Kind::kDict);
}
bool is_escaped(const Value& v) {
  return v.is(Kind::kString) && v.markup;
}
bool is_iterable(const Value& v) {
  return v.is(Kind::kUndefined) || v.is(Kind::kString) || v.is(Kind::kSeq) || v.is(Kind::kDict) || v.is(Kind::kLoop);
}
// Anything with a length and subscripts, so dicts and undefined values too.
bool is_sequence(const Value& v) {
  if (v.is(Kind::kSeq)) return v.seq->indexable();
  return v.is(Kind::kUndefined) || v.is(Kind::kString) || v.is(Kind::kDict);
}
bool is_callable(const Value& v) {
  return v.is(Kind::kUndefined) || v.is(Kind::kMacro) || v.is(Kind::kFunction) || v.is(Kind::kMethod) ||
         v.is(Kind::kLoop);
}

template <bool upper>
bool is_case(Interpreter& in, const Value& v, const Args& raw) {
  Value text = in.string(to_str(in.heap(), v));
  return truthy(find_string_method(upper ? "isupper" : "islower")->call(in, text, raw));
}

Value modulo(Interpreter& in, const Value& v, const Value& by) {
  return binary(in.heap(), Op::kMod, v, by);
}

template <int rest>
bool is_parity(Interpreter& in, const Value& v, const Args& raw) {
  Arguments args("odd and even", raw, {});
  return same(in.heap(), modulo(in, v, Value::of(2)), Value::of(rest));
}

bool is_divisible(Interpreter& in, const Value& v, const Args& raw) {
  Arguments args("divisibleby", raw, {"num"}, 1);
  return same(in.heap(), modulo(in, v, args[0]), Value::of(0));
}

template <Op op>
bool compares(Interpreter& in, const Value& v, const Args& raw) {
  Arguments args("the comparison", raw, {"other"}, 1);
  return compare(in.heap(), op, v, args[0]);
}

// Identity: distinct for equal lists; for simple values the same as equal and of one type.
bool is_same(Interpreter& in, const Value& v, const Args& raw) {
  Arguments args("sameas", raw, {"other"}, 1);
  const Value& other = args[0];
  if (v.kind != other.kind) return false;
  if (v.is(Kind::kSeq)) return v.seq == other.seq;
  if (v.is(Kind::kDict)) return v.dict == other.dict;
  return same(in.heap(), v, other);
}

bool is_filter(Interpreter&, const Value& v, const Args& raw) {
  Arguments args("filter", raw, {});
  return v.is(Kind::kString) && find_filter(v.str()) != nullptr;
}

bool is_test(Interpreter&, const Value& v, const Args& raw) {
  Arguments args("test", raw, {});
  return v.is(Kind::kString) && find_test(v.str()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", check<is_defined>},
    {"undefined", check<is_undefined>},
    {"none", check<is_none>},
    {"boolean", check<is_boolean>},
    {"true", check<is_true>},
    {"false", check<is_false>},
    {"integer", check<is_integer>},
    {"float", check<is_float>},
    {"number", check<is_number>},
    {"string", check<is_string>},
    {"mapping", check<is_mapping>},
    {"iterable", check<is_iterable>},
    {"sequence", check<is_sequence>},
    {"callable", check<is_callable>},
    {"escaped", check<is_escaped>},
    {"upper", is_case<true>},
    {"lower", is_case<false>},
    {"odd", is_parity<1>},
    {"even", is_parity<0>},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Op::kIn>},
    {"==", compares<Op::kEq>},
    {"eq", compares<Op::kEq>},
    {"equalto", compares<Op::kEq>},
    {"!=", compares<Op::kNe>},
    {"ne", compares<Op::kNe>},
    {">", compares<Op::kGt>},
    {"gt", compares<Op::kGt>},
    {"greaterthan", compares<Op::kGt>},
    {">=", compares<Op::kGe>},
    {"ge", compares<Op::kGe>},
    {"<", compares<Op::kLt>},
    {"lt", compares<Op::kLt>},
    {"lessthan", compares<Op::kLt>},
    {"<=", compares<Op::kLe>},
    {"le", compares<Op::kLe>},
};

}  // namespace

TestFn find_test(std::string_view name) {
  for (const TestEntry& entry : kTests) {
    if (entry.name == name) return entry.call;
  }
  return nullptr;
}

}  // namespace godwit::jinja
