// The parsed template. Built once by the parser, immutable afterwards and shared by all renders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace godwit::jinja {

class Interpreter;
using FilterFn = Value (*)(Interpreter&, const Value& self, const Args&);
using TestFn = bool (*)(Interpreter&, const Value& self, const Args&);

enum class ExprKind : uint8_t {
  kConst,      // constant
  kName,       // name
  kMember,     // name.attribute as the target of a set
  kTuple,      // args
  kList,       // args
  kDict,       // args: key, value, key, value, ...
  kNot,        // args[0]
  kNegate,     // args[0]
  kPlus,       // args[0]
  kBinary,     // args[0] op args[1]
  kAnd,        // args[0], args[1]
  kOr,         // args[0], args[1]
  kCompare,    // args[0] ops[0] args[1] ops[1] args[2] ...
  kConcat,     // args
  kCondition,  // args[0] if args[1] else args[2]; args[2] may be null
  kFilter,     // args[0] | name(rest of args); args[0] is null in a filter block
  kTest,       // args[0] is name(rest of args)
  kCall,       // args[0](rest of args)
  kAttribute,  // args[0].attribute
  kItem,       // args[0][args[1]]
  kSlice,      // start, stop, step of an item, each may be null
};

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int height = 1;  // of the tree below; bounded by the parser
  Op op = Op::kAdd;
  FilterFn filter = nullptr;  // null if no filter of that name exists; an error only when reached
  TestFn test = nullptr;
  Value constant;
  std::string name;
  std::string attribute;
  std::vector<ExprPtr> args;
  std::vector<Op> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star_args;   // *expr
  ExprPtr star_named;  // **expr
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// Parameters and body of a macro or a call block.
struct Callable {
  std::string name;
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // of the last params
  Body body;
  bool takes_varargs = false;  // the body mentions varargs, kwargs, caller
  bool takes_kwargs = false;
  bool takes_caller = false;
};

enum class StmtKind : uint8_t {
  kText,      // text
  kOutput,    // expr
  kIf,        // branches, orelse
  kFor,       // target, expr, test, body, orelse
  kSet,       // target, expr
  kSetBlock,  // target, expr (a filter chain or null), body
  kWith,      // bindings, body
  kMacro,     // callable
  kCall,      // expr (a call), callable
  kFilter,    // expr (a filter chain), body
  kScope,     // body with names of its own ({% generation %})
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  TextPtr text;
  ExprPtr target;
  ExprPtr expr;
  ExprPtr test;
  Body body;
  Body orelse;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;
  Callable callable;
};

struct Ast {
  std::string label;
  Body body;
};

// Throws Failure.
void parse_template(std::string_view source, const Limits& limits, Ast& ast);

}  // namespace godwit::jinja
