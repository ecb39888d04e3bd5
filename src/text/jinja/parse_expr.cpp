#include <algorithm>

#include "text/jinja/parser.h"

namespace godwit::jinja {

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr Parser::make(ExprKind kind, int line, ExprPtr a, ExprPtr b) const {
  ExprPtr expr = make(kind, line);
  expr->args.push_back(std::move(a));
  if (b) expr->args.push_back(std::move(b));
  return sealed(std::move(expr));
}

ExprPtr Parser::sealed(ExprPtr expr) const {
  int below = 0;
  auto look = [&](const ExprPtr& child) {
    if (child) below = std::max(below, child->height);
  };
  for (const auto& arg : expr->args) look(arg);
  for (const auto& [name, arg] : expr->named) look(arg);
  look(expr->star_args);
  look(expr->star_named);
  expr->height = below + 1;
  if (expr->height > 2 * limits_.max_nesting) {
    syntax_error(expr->line, fmt::format("the expression is more than {} operations deep", 2 * limits_.max_nesting),
                 ErrorCode::kExhausted);
  }
  return expr;
}

ExprPtr Parser::expression(bool with_condition) {
  Nested nested(*this);
  int line = current().line;
  ExprPtr expr = disjunction();
  while (with_condition && skip_name("if")) {
    ExprPtr condition = make(ExprKind::kCondition, line, std::move(expr), disjunction());
    condition->args.push_back(skip_name("else") ? expression() : nullptr);
    expr = sealed(std::move(condition));
  }
  return expr;
}

// One expression, or several separated by commas, which make a tuple.
ExprPtr Parser::tuple(bool with_condition, bool in_parentheses, Names ends) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    TokenType type = current().type;
    if (type == TokenType::kVariableEnd || type == TokenType::kBlockEnd || is_op(")") || is_any_name(ends)) break;
    items.push_back(expression(with_condition));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (items.empty() && !in_parentheses) unexpected("an expression");
  ExprPtr expr = make(ExprKind::kTuple, line);
  expr->args = std::move(items);
  return sealed(std::move(expr));
}

ExprPtr Parser::target_primary(bool allow_member) {
  Nested nested(*this);
  int line = current().line;
  if (skip_op("(")) {
    ExprPtr inner = target(allow_member);
    expect_op(")");
    return inner;
  }
  ExprPtr expr = make(ExprKind::kName, line);
  expr->name = expect_name("a name to assign to");
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (expr->name == constant) syntax_error(line, fmt::format("cannot assign to {}", constant));
  }
  if (allow_member && skip_op(".")) {
    expr->kind = ExprKind::kMember;
    expr->attribute = expect_name("an attribute name");
  }
  return expr;
}

ExprPtr Parser::target(bool allow_member, Names ends) {
  int line = current().line;
  ExprPtr first = target_primary(allow_member);
  if (!is_op(",")) return first;
  ExprPtr expr = make(ExprKind::kTuple, line);
  expr->args.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_op(")") || is_op("=") || is_any_name(ends) || current().type == TokenType::kBlockEnd) break;
    expr->args.push_back(target_primary(allow_member));
  }
  return sealed(std::move(expr));
}

ExprPtr Parser::disjunction() {
  ExprPtr left = conjunction();
  while (is_name("or")) {
    int line = take().line;
    left = make(ExprKind::kOr, line, std::move(left), conjunction());
  }
  return left;
}

ExprPtr Parser::conjunction() {
  ExprPtr left = negation();
  while (is_name("and")) {
    int line = take().line;
    left = make(ExprKind::kAnd, line, std::move(left), negation());
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  Nested nested(*this);
  int line = take().line;
  return make(ExprKind::kNot, line, negation());
}

bool Parser::compare_op(Op& op) {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                                             {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
  for (const auto& [text, which] : kOps) {
    if (skip_op(text)) {
      op = which;
      return true;
    }
  }
  op = Op::kIn;
  if (skip_name("in")) return true;
  op = Op::kNotIn;
  if (!is_name("not") || ahead().type != TokenType::kName || ahead().text != "in") return false;
  pos_ += 2;
  return true;
}

ExprPtr Parser::comparison() {
  int line = current().line;
  ExprPtr first = sum();
  Op op;
  if (!compare_op(op)) return first;
  ExprPtr expr = make(ExprKind::kCompare, line);
  expr->args.push_back(std::move(first));
  do {
    expr->ops.push_back(op);
    expr->args.push_back(sum());
  } while (compare_op(op));
  return sealed(std::move(expr));
}

ExprPtr Parser::sum() {
  ExprPtr left = concatenation();
  while (is_op("+") || is_op("-")) {
    Token token = take();
    left = make(ExprKind::kBinary, token.line, std::move(left), concatenation());
    left->op = token.text == "+" ? Op::kAdd : Op::kSub;
  }
  return left;
}

ExprPtr Parser::concatenation() {
  int line = current().line;
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr expr = make(ExprKind::kConcat, line);
  expr->args.push_back(std::move(first));
  while (skip_op("~")) expr->args.push_back(product());
  return sealed(std::move(expr));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    Token token = take();
    left = make(ExprKind::kBinary, token.line, std::move(left), power());
    left->op = token.text == "*"    ? Op::kMul
               : token.text == "/"  ? Op::kDiv
               : token.text == "//" ? Op::kFloorDiv
                                    : Op::kMod;
  }
  return left;
}

// Jinja's own grammar groups a ** b ** c from the left.
ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    int line = take().line;
    left = make(ExprKind::kBinary, line, std::move(left), unary());
    left->op = Op::kPow;
  }
  return left;
}

ExprPtr Parser::unary(bool with_filters) {
  Nested nested(*this);
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    Token token = take();
    expr = make(token.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, token.line, unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filters ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::name_or_constant() {
  Token token = take();
  ExprPtr expr = make(ExprKind::kConst, token.line);
  const std::string& name = token.text;
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->constant = Value::of(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    expr->constant = Value::none();
  } else {
    expr->kind = ExprKind::kName;
    expr->name = name;
    for (Callable* callable : callables_) {
      callable->takes_varargs |= name == "varargs";
      callable->takes_kwargs |= name == "kwargs";
      callable->takes_caller |= name == "caller";
    }
  }
  return expr;
}

ExprPtr Parser::primary() {
  const Token& token = current();
  ExprPtr expr = make(ExprKind::kConst, token.line);
  switch (token.type) {
    case TokenType::kName:
      return name_or_constant();
    case TokenType::kString: {
      std::string text;
      while (current().type == TokenType::kString) text += take().text;
      expr->constant = Value::constant(std::move(text));
      return expr;
    }
    case TokenType::kInteger:
    case TokenType::kFloat:
      expr->constant = take().number;
      return expr;
    default:
      break;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  if (!skip_op("(")) unexpected("an expression");
  expr = tuple(true, true);
  expect_op(")");
  return expr;
}

ExprPtr Parser::list() {
  ExprPtr expr = make(ExprKind::kList, take().line);
  while (!is_op("]")) {
    expr->args.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("]");
  return sealed(std::move(expr));
}

ExprPtr Parser::dict() {
  ExprPtr expr = make(ExprKind::kDict, take().line);
  while (!is_op("}")) {
    expr->args.push_back(expression());
    expect_op(":");
    expr->args.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("}");
  return sealed(std::move(expr));
}

}  // namespace godwit::jinja
