// Recursive descent over the tokens. Expressions and statements are in files of their own; this class is their shared
// state. Nesting is bounded, so that neither parsing nor evaluating can exhaust the stack.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace godwit::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits) : tokens_(std::move(tokens)), limits_(limits) {}

  Body parse();

 private:
  using Names = std::initializer_list<std::string_view>;

  struct Nested {
    explicit Nested(Parser& p);
    ~Nested() { parser.nesting_--; }
    Parser& parser;
  };

  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  Token take();
  bool is_op(std::string_view op) const { return current().type == TokenType::kOperator && current().text == op; }
  bool is_name(std::string_view name) const { return current().type == TokenType::kName && current().text == name; }
  bool is_any_name(Names names) const;
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect(TokenType type, std::string_view what);
  std::string expect_name(std::string_view what);
  [[noreturn]] void error(std::string_view message) const { syntax_error(current().line, message); }
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Statements (parse_stmt.cpp). The inside of a block up to, not including, a tag named in `ends`.
  Body body_until(Names ends);
  Body block(Names ends);  // after the opening tag's expression: %} body {% end; the end's name is current
  std::unique_ptr<Stmt> statement();
  std::unique_ptr<Stmt> if_statement();
  std::unique_ptr<Stmt> for_statement();
  std::unique_ptr<Stmt> set_statement();
  std::unique_ptr<Stmt> with_statement();
  std::unique_ptr<Stmt> call_statement();
  void signature(Callable& callable);
  void callable_body(Callable& callable, std::string_view end);

  // Expressions (parse_expr.cpp).
  ExprPtr make(ExprKind kind, int line) const;
  ExprPtr make(ExprKind kind, int line, ExprPtr a, ExprPtr b = nullptr) const;
  ExprPtr sealed(ExprPtr expr) const;  // fixes its height, or fails
  ExprPtr expression(bool with_condition = true);
  ExprPtr tuple(bool with_condition, bool in_parentheses, Names ends = {});
  ExprPtr target(bool allow_member, Names ends = {});
  ExprPtr target_primary(bool allow_member);
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  bool compare_op(Op& op);
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr slice_or_index();
  ExprPtr filters(ExprPtr expr, bool first_without_pipe = false);
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr test(ExprPtr expr);
  void arguments(Expr& call);
  std::string dotted_name(std::string_view what);

  std::vector<Token> tokens_;
  const Limits limits_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                     // open for loops of the current function
  std::vector<Callable*> callables_;  // being parsed, outermost first
};

FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);

}  // namespace godwit::jinja
