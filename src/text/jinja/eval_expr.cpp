#include "text/jinja/eval.h"

namespace godwit::jinja {

Value Interpreter::eval(const Expr& e) {
  Deeper deeper(*this, e.line);
  switch (e.kind) {
    case ExprKind::kConst:
      return e.constant;
    case ExprKind::kName:
      return lookup(e.name);
    case ExprKind::kTuple:
    case ExprKind::kList: {
      std::vector<Value> items;
      items.reserve(e.args.size());
      for (const auto& arg : e.args) items.push_back(eval(*arg));
      return e.kind == ExprKind::kList ? heap_.list(std::move(items)) : heap_.tuple(std::move(items));
    }
    case ExprKind::kDict: {
      Value dict = heap_.dict();
      for (size_t i = 0; i < e.args.size(); i += 2) {
        Value key = eval(*e.args[i]);
        heap_.put(*dict.dict, std::move(key), eval(*e.args[i + 1]));
      }
      return dict;
    }
    case ExprKind::kNot:
      return Value::of(!truthy(eval(*e.args[0])));
    case ExprKind::kNegate:
      return negate(eval(*e.args[0]));
    case ExprKind::kPlus: {
      Value v = eval(*e.args[0]);
      require_defined(v);
      if (!v.is_number()) raise(ErrorCode::kBadData, "bad operand type for unary +: '{}'", type_name(v));
      return v.is(Kind::kBool) ? Value::of(v.as_int()) : v;
    }
    case ExprKind::kBinary: {
      Value left = eval(*e.args[0]);
      return binary(heap_, e.op, left, eval(*e.args[1]));
    }
    case ExprKind::kAnd: {
      Value left = eval(*e.args[0]);
      return truthy(left) ? eval(*e.args[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = eval(*e.args[0]);
      return truthy(left) ? left : eval(*e.args[1]);
    }
    case ExprKind::kCompare:
      return eval_compare(e);
    case ExprKind::kConcat:
      return eval_concat(e);
    case ExprKind::kCondition:
      if (truthy(eval(*e.args[1]))) return eval(*e.args[0]);
      if (e.args[2]) return eval(*e.args[2]);
      return heap_.undefined("the inline if evaluated to false and has no else");
    case ExprKind::kFilter:
      return eval_filter(e, {});
    case ExprKind::kTest: {
      Value self = eval(*e.args[0]);
      if (e.test == nullptr) raise(ErrorCode::kUnsupported, "there is no test named '{}'", e.name);
      return Value::of(e.test(*this, self, eval_args(e, 1)));
    }
    case ExprKind::kCall:
      return eval_call(e);
    case ExprKind::kAttribute:
      return attribute(eval(*e.args[0]), e.attribute);
    case ExprKind::kItem:
      return eval_item(e);
    case ExprKind::kSlice:
      raise(ErrorCode::kUnsupported, "a slice among several subscripts is not supported");
    case ExprKind::kMember:
      break;
  }
  raise(ErrorCode::kBadData, "this expression cannot be evaluated");
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.args[0]);
  for (size_t i = 0; i < e.ops.size(); i++) {
    Value right = eval(*e.args[i + 1]);
    if (!compare(heap_, e.ops[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::eval_concat(const Expr& e) {
  std::string text;
  for (const auto& arg : e.args) {
    Value v = eval(*arg);
    if (v.is(Kind::kString)) {
      heap_.work(text.size() + v.str().size());
      text += v.str();
    } else {
      text += to_str(heap_, v);
    }
  }
  return string(std::move(text));
}

Args Interpreter::eval_args(const Expr& e, size_t first) {
  Args args;
  for (size_t i = first; i < e.args.size(); i++) args.positional.push_back(eval(*e.args[i]));
  for (const auto& [name, expr] : e.named) args.named.emplace_back(name, eval(*expr));
  if (e.star_args) {
    for (Value& v : items_of(eval(*e.star_args))) args.positional.push_back(std::move(v));
  }
  if (e.star_named) {
    Value more = eval(*e.star_named);
    if (!more.is(Kind::kDict)) raise(ErrorCode::kBadData, "** needs a dict, not {}", type_name(more));
    for (const auto& [name, value] : more.dict->entries) {
      if (!name.is(Kind::kString)) raise(ErrorCode::kBadData, "the names after ** must be strings");
      args.named.emplace_back(name.str(), value);
    }
  }
  return args;
}

// `self` is what the innermost filter of a filter block or set block applies to.
Value Interpreter::eval_filter(const Expr& e, const Value& self) {
  Value operand = e.args[0] == nullptr                   ? self
                  : e.args[0]->kind == ExprKind::kFilter ? eval_filter(*e.args[0], self)
                                                         : eval(*e.args[0]);
  Deeper deeper(*this, e.line);
  if (e.filter == nullptr) raise(ErrorCode::kUnsupported, "there is no filter named '{}'", e.name);
  Args args = eval_args(e, 1);
  line_ = e.line;
  return e.filter(*this, operand, args);
}

Value Interpreter::eval_item(const Expr& e) {
  Value object = eval(*e.args[0]);
  if (e.args[1]->kind == ExprKind::kSlice) return eval_slice(object, *e.args[1]);
  Value key = eval(*e.args[1]);
  return item(object, key);
}

Value Interpreter::eval_call(const Expr& e) {
  const Expr& callee = *e.args[0];
  if (callee.kind == ExprKind::kAttribute) {
    // The usual object.method(...), without making a method value that would keep the object alive.
    Value object = eval(*callee.args[0]);
    if (const MethodEntry* method = method_of(object, callee.attribute)) {
      Args args = eval_args(e, 1);
      line_ = e.line;
      return method->call(*this, object, args);
    }
    Value member = attribute(object, callee.attribute);
    return call(member, eval_args(e, 1));
  }
  Value value = eval(callee);
  return call(value, eval_args(e, 1));
}

Value Interpreter::call(const Value& callee, Args args) {
  Deeper deeper(*this, line_);
  switch (callee.kind) {
    case Kind::kMacro:
      return call_macro(*callee.macro, std::move(args));
    case Kind::kFunction:
      return callee.function->call(*this, args);
    case Kind::kMethod:
      return callee.method->method->call(*this, callee.method->self, args);
    default:
      require_defined(callee);
      raise(ErrorCode::kBadData, "'{}' object is not callable", type_name(callee));
  }
}

}  // namespace godwit::jinja
