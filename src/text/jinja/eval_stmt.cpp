#include <algorithm>

#include "text/jinja/eval.h"

namespace godwit::jinja {

Interpreter::Interpreter(const Ast& ast, const RenderOptions& options)
    : ast_(ast), options_(options), heap_(options.limits) {}

std::string Interpreter::run(const nlohmann::ordered_json& context) {
  if (!context.is_object()) raise(ErrorCode::kInvalidArgument, "the template's context is not an object");
  Opened root(*this, nullptr);
  for (auto it = context.begin(); it != context.end(); ++it) {
    scope_->names.emplace_back(it.key(), from_json(heap_, it.value()));
  }
  std::string out;
  out_ = &out;
  exec(ast_.body);
  return out;
}

Scope* Interpreter::open_scope(Scope* parent) {
  Scope* scope;
  if (free_scopes_.empty()) {
    scope = heap_.adopt(scopes_, Scope{});
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::close_scope(Scope* scope) {
  if (scope->captured) return;
  scope->names.clear();
  free_scopes_.push_back(scope);
}

void Interpreter::capture() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

Value Interpreter::lookup(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return value;
    }
  }
  if (const Builtin* builtin = find_global(name)) {
    Value v;
    v.kind = Kind::kFunction;
    v.function = builtin;
    return v;
  }
  return heap_.undefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::define(std::string_view name, Value value) {
  for (auto& [known, slot] : scope_->names) {
    if (known == name) {
      slot = std::move(value);
      return;
    }
  }
  scope_->names.emplace_back(name, std::move(value));
}

void Interpreter::write(std::string_view text) {
  if (text.size() > heap_.limits().max_output_bytes || out_->size() > heap_.limits().max_output_bytes - text.size()) {
    raise(ErrorCode::kExhausted, "the output is longer than {} bytes", heap_.limits().max_output_bytes);
  }
  heap_.step(static_cast<int64_t>(text.size() / 64));
  out_->append(text);
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  for (const auto& stmt : body) {
    if (Flow flow = exec(*stmt); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::exec(const Stmt& stmt) {
  Deeper deeper(*this, stmt.line);
  switch (stmt.kind) {
    case StmtKind::kText:
      write(stmt.text->bytes);
      break;
    case StmtKind::kOutput: {
      Value v = eval(*stmt.expr);
      if (v.is(Kind::kString)) {
        write(v.str());
      } else {
        write(to_str(heap_, v));
      }
      break;
    }
    case StmtKind::kIf:
      for (const auto& [condition, body] : stmt.branches) {
        if (truthy(eval(*condition))) return exec(body);
      }
      return exec(stmt.orelse);
    case StmtKind::kFor:
      return exec_for(stmt);
    case StmtKind::kSet:
      assign(*stmt.target, eval(*stmt.expr));
      break;
    case StmtKind::kSetBlock:
      exec_set_block(stmt);
      break;
    case StmtKind::kWith: {
      std::vector<Value> values;
      for (const auto& [name, expr] : stmt.bindings) values.push_back(eval(*expr));
      Opened scope(*this, scope_);
      for (size_t i = 0; i < values.size(); i++) assign(*stmt.bindings[i].first, values[i]);
      return exec(stmt.body);
    }
    case StmtKind::kMacro: {
      capture();
      Value v;
      v.kind = Kind::kMacro;
      v.macro = heap_.adopt(macros_, Macro{&stmt.callable, scope_});
      define(stmt.callable.name, v);
      break;
    }
    case StmtKind::kCall:
      exec_call(stmt);
      break;
    case StmtKind::kFilter: {
      std::string text = captured_output(stmt.body);
      write(to_str(heap_, eval_filter(*stmt.expr, string(std::move(text)))));
      break;
    }
    case StmtKind::kScope: {
      Opened scope(*this, scope_);
      return exec(stmt.body);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

std::string Interpreter::captured_output(const Body& body) {
  Opened scope(*this, scope_);
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  exec(body);
  out_ = outer;
  return text;
}

void Interpreter::exec_set_block(const Stmt& stmt) {
  Value value = string(captured_output(stmt.body));
  if (stmt.expr) value = eval_filter(*stmt.expr, value);
  assign(*stmt.target, std::move(value));
}

void Interpreter::exec_call(const Stmt& stmt) {
  capture();
  Value caller;
  caller.kind = Kind::kMacro;
  caller.macro = heap_.adopt(macros_, Macro{&stmt.callable, scope_});
  Value callee = eval(*stmt.expr->args[0]);
  Args args = eval_args(*stmt.expr, 1);
  args.named.emplace_back("caller", caller);
  write(to_str(heap_, call(callee, std::move(args))));
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    define(target.name, std::move(value));
  } else if (target.kind == ExprKind::kMember) {
    Value owner = lookup(target.name);
    if (!owner.is(Kind::kNamespace)) {
      raise(ErrorCode::kBadData, "cannot set '{}.{}': '{}' is not a namespace", target.name, target.attribute,
            target.name);
    }
    heap_.put(*owner.dict, target.attribute, std::move(value));
  } else {
    assign_tuple(target, value);
  }
}

void Interpreter::assign_tuple(const Expr& target, const Value& value) {
  std::vector<Value> items = items_of(value);
  if (items.size() != target.args.size()) {
    raise(ErrorCode::kBadData, "cannot unpack {} values into {} names", items.size(), target.args.size());
  }
  for (size_t i = 0; i < items.size(); i++) assign(*target.args[i], items[i]);
}

Interpreter::Flow Interpreter::exec_for(const Stmt& stmt) {
  Value source = eval(*stmt.expr);
  if (source.is(Kind::kString) || source.is(Kind::kDict) || source.is(Kind::kUndefined)) {
    source = heap_.list(items_of(source));
  }
  if (!source.is(Kind::kSeq)) raise(ErrorCode::kBadData, "'{}' object is not iterable", type_name(source));
  Loop& loop = *heap_.adopt(loops_, Loop{});
  loop.source = source;
  Scope* outer = scope_;
  if (stmt.test) {
    loop.keep = [&, outer](const Value& item) {
      Scope* inner = std::exchange(scope_, outer);
      Opened scope(*this, outer);
      assign(*stmt.target, item);
      bool kept = truthy(eval(*stmt.test));
      scope.close();
      scope_ = inner;
      return kept;
    };
  }
  Value loop_value;
  loop_value.kind = Kind::kLoop;
  loop_value.loop = &loop;
  Value value;
  while (next_item(loop, value)) {
    heap_.step();
    Opened scope(*this, outer);
    define("loop", loop_value);
    assign(*stmt.target, value);
    if (exec(stmt.body) == Flow::kBreak) break;
  }
  loop.keep = nullptr;
  if (loop.index0 < 0) {
    Opened scope(*this, outer);
    return exec(stmt.orelse);
  }
  return Flow::kNext;
}

Value Interpreter::call_macro(const Macro& macro, Args args) {
  const Callable& callable = *macro.callable;
  size_t count = callable.params.size();
  Scope* calling = scope_;
  Opened scope(*this, macro.scope);
  auto take_named = [&](std::string_view name) -> Value* {
    auto it = std::find_if(args.named.begin(), args.named.end(), [&](const auto& arg) { return arg.first == name; });
    if (it == args.named.end()) return nullptr;
    scope_->names.emplace_back(name, std::move(it->second));
    args.named.erase(it);
    return &scope_->names.back().second;
  };
  for (size_t i = 0; i < count; i++) {
    std::string_view name = callable.params[i];
    if (i < args.positional.size()) {
      define(name, args.positional[i]);
    } else if (take_named(name) == nullptr) {
      size_t first_default = count - callable.defaults.size();
      define(name, i >= first_default ? eval(*callable.defaults[i - first_default])
                                      : heap_.undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  bool caller_is_param = std::find(callable.params.begin(), callable.params.end(), "caller") != callable.params.end();
  if (callable.takes_caller && !caller_is_param && take_named("caller") == nullptr) {
    define("caller", heap_.undefined("no caller defined"));
  }
  if (callable.takes_kwargs) {
    Value kwargs = heap_.dict();
    for (auto& [name, value] : args.named) heap_.put(*kwargs.dict, name, value);
    define("kwargs", kwargs);
  } else if (!args.named.empty()) {
    raise(ErrorCode::kBadData, "macro '{}' takes no keyword argument '{}'", callable.name, args.named[0].first);
  }
  std::vector<Value> extra;
  for (size_t i = count; i < args.positional.size(); i++) extra.push_back(args.positional[i]);
  if (callable.takes_varargs) {
    define("varargs", heap_.tuple(std::move(extra)));
  } else if (!extra.empty()) {
    raise(ErrorCode::kBadData, "macro '{}' takes not more than {} argument(s)", callable.name, count);
  }
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  exec(callable.body);
  out_ = outer;
  scope.close();
  scope_ = calling;
  return string(std::move(text));
}

}  // namespace godwit::jinja
