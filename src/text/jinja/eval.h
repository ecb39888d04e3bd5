// The guards that the interpreter's own files share.
#pragma once

#include "text/jinja/interpreter.h"

namespace godwit::jinja {

// Counts one step and one level of evaluation, so that neither time nor the stack runs out.
struct Interpreter::Deeper {
  Deeper(Interpreter& i, int line) : in(i) {
    in.line_ = line;
    in.heap_.step();
    if (in.depth_ >= in.heap_.limits().max_depth) {
      raise(ErrorCode::kExhausted, "evaluation is nested deeper than {}", in.heap_.limits().max_depth);
    }
    in.depth_++;
  }
  ~Deeper() { in.depth_--; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Interpreter& in;
};

// Makes a new scope the current one until it is closed.
class Interpreter::Opened {
 public:
  Opened(Interpreter& in, Scope* parent) : in_(in), outer_(in.scope_), scope_(in.open_scope(parent)) {
    in.scope_ = scope_;
  }
  ~Opened() { close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void close() {
    if (scope_ == nullptr) return;
    in_.scope_ = outer_;
    in_.close_scope(scope_);
    scope_ = nullptr;
  }

 private:
  Interpreter& in_;
  Scope* outer_;
  Scope* scope_;
};

}  // namespace godwit::jinja
