// Runs a parsed template once. Filters, tests, methods and global functions are free functions in tables of their own
// and receive the Interpreter for its heap and for calling back.
//
// Names live in scopes: loops, macros, with and set blocks open one, if does not. `set` writes the innermost scope;
// lookups walk outwards to the root scope, which starts with the caller's context, and end at the global functions.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"

namespace godwit::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;  // the views point into the Ast or the context
  bool captured = false;                                  // a macro refers to it: it must live on
};

struct Macro {
  const Callable* callable = nullptr;
  Scope* scope = nullptr;
};

struct Builtin {
  std::string_view name;
  Value (*call)(Interpreter&, const Args&);
};

struct MethodEntry {
  std::string_view name;
  FilterFn call;
};

struct BoundMethod {
  Value self;
  const MethodEntry* method = nullptr;
};

// What `loop` is inside a for. Items are fetched lazily, one ahead at most unless the length is asked for, because a
// loop's condition may depend on what its body did.
struct Loop {
  Value source;                            // keeps the items alive
  size_t position = 0;                     // next item of the source
  std::function<bool(const Value&)> keep;  // the loop's own `if`; may be empty
  std::vector<Value> ahead;                // fetched, in order
  size_t ahead_begin = 0;
  int64_t index0 = -1;
  Value current, previous;
  bool has_previous = false;
  Value changed_key;
};

class Interpreter {
 public:
  Interpreter(const Ast& ast, const RenderOptions& options);

  std::string run(const nlohmann::ordered_json& context);
  int line() const { return line_; }

  // For filters, tests, methods and functions.
  Heap& heap() { return heap_; }
  const RenderOptions& options() const { return options_; }
  Value string(std::string s, bool markup = false) { return heap_.string(std::move(s), markup); }
  Value attribute(const Value& object, std::string_view name);  // object.name
  Value item(const Value& object, const Value& key);            // object[key]
  Value call(const Value& callee, Args args);
  std::vector<Value> items_of(const Value& v);  // all items of an iterable; uses up a generator
  bool next_item(Loop& loop, Value& out);
  bool peek_item(Loop& loop);
  int64_t loop_length(Loop& loop);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Deeper;
  class Opened;

  Scope* open_scope(Scope* parent);
  void close_scope(Scope* scope);
  Value lookup(std::string_view name);
  void define(std::string_view name, Value value);
  void capture();

  // eval_stmt.cpp
  Flow exec(const Body& body);
  Flow exec(const Stmt& stmt);
  Flow exec_for(const Stmt& stmt);
  void exec_set_block(const Stmt& stmt);
  void exec_call(const Stmt& stmt);
  void assign(const Expr& target, Value value);
  void assign_tuple(const Expr& target, const Value& value);
  void write(std::string_view text);
  std::string captured_output(const Body& body);
  Value call_macro(const Macro& macro, Args args);

  // eval_expr.cpp
  Value eval(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_item(const Expr& e);
  Value eval_call(const Expr& e);
  Value eval_slice(const Value& object, const Expr& slice);
  Value eval_filter(const Expr& e, const Value& self);
  Args eval_args(const Expr& e, size_t first);

  // subscript.cpp
  const MethodEntry* method_of(const Value& object, std::string_view name) const;
  Value loop_attribute(Loop& loop, std::string_view name);

  const Ast& ast_;
  const RenderOptions& options_;
  Heap heap_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<BoundMethod> methods_;
  std::deque<Loop> loops_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  int line_ = 0;
  int depth_ = 0;
};

// operators.cpp
Value binary(Heap& heap, Op op, const Value& a, const Value& b);
Value negate(const Value& v);
bool compare(Heap& heap, Op op, const Value& a, const Value& b);
std::string escape_html(std::string_view text);

// format.cpp: "..." % values and "...".format(values)
std::string format_percent(Heap& heap, std::string_view format, const Value& values);
std::string format_braces(Interpreter& in, std::string_view format, const Args& args);

// The tables; null if there is no such name.
const Builtin* find_global(std::string_view name);
const MethodEntry* find_string_method(std::string_view name);
const MethodEntry* find_list_method(std::string_view name, bool tuple);
const MethodEntry* find_dict_method(std::string_view name);
const MethodEntry* find_loop_method(std::string_view name);

}  // namespace godwit::jinja
