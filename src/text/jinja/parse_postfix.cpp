// What may follow a primary expression: attributes, subscripts, calls, filters and tests.
#include "text/jinja/parser.h"

namespace godwit::jinja {

ExprPtr Parser::postfix(ExprPtr expr) {
  while (true) {
    int line = current().line;
    if (is_op(".") || is_op("[")) {
      expr = subscript(std::move(expr));
    } else if (is_op("(")) {
      ExprPtr call = make(ExprKind::kCall, line, std::move(expr));
      arguments(*call);
      expr = sealed(std::move(call));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr expr) {
  Token open = take();
  if (open.text == ".") {
    if (current().type == TokenType::kInteger) {
      ExprPtr index = make(ExprKind::kConst, open.line);
      index->constant = take().number;
      return make(ExprKind::kItem, open.line, std::move(expr), std::move(index));
    }
    ExprPtr attribute = make(ExprKind::kAttribute, open.line, std::move(expr));
    attribute->attribute = expect_name("an attribute name");
    return attribute;
  }
  std::vector<ExprPtr> indices;
  while (!is_op("]")) {
    if (!indices.empty()) expect_op(",");
    indices.push_back(slice_or_index());
  }
  expect_op("]");
  if (indices.size() == 1) return make(ExprKind::kItem, open.line, std::move(expr), std::move(indices[0]));
  ExprPtr key = make(ExprKind::kTuple, open.line);
  key->args = std::move(indices);
  return make(ExprKind::kItem, open.line, std::move(expr), sealed(std::move(key)));
}

ExprPtr Parser::slice_or_index() {
  int line = current().line;
  auto part_ends = [&] { return is_op(":") || is_op("]") || is_op(","); };
  ExprPtr start = is_op(":") ? nullptr : expression();
  if (!skip_op(":")) return start;
  ExprPtr slice = make(ExprKind::kSlice, line);
  slice->args.push_back(std::move(start));
  slice->args.push_back(part_ends() ? nullptr : expression());
  slice->args.push_back(skip_op(":") && !part_ends() ? expression() : nullptr);
  return sealed(std::move(slice));
}

// Adds the arguments in parentheses to a call, filter or test.
void Parser::arguments(Expr& call) {
  expect_op("(");
  while (!is_op(")")) {
    if (is_op("*") && !call.star_args && !call.star_named) {
      take();
      call.star_args = expression();
    } else if (is_op("**") && !call.star_named) {
      take();
      call.star_named = expression();
    } else if (current().type == TokenType::kName && ahead().type == TokenType::kOperator && ahead().text == "=" &&
               !call.star_named) {
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), expression());
    } else if (!call.star_args && !call.star_named && call.named.empty()) {
      call.args.push_back(expression());
    } else {
      error("a positional argument follows a named or starred one");
    }
    if (!skip_op(",")) break;
  }
  expect_op(")");
}

std::string Parser::dotted_name(std::string_view what) {
  std::string name = expect_name(what);
  while (skip_op(".")) {
    name += '.';
    name += expect_name(what);
  }
  return name;
}

ExprPtr Parser::filters(ExprPtr expr, bool first_without_pipe) {
  while (first_without_pipe || is_op("|")) {
    if (!first_without_pipe) take();
    first_without_pipe = false;
    ExprPtr filter = make(ExprKind::kFilter, current().line, std::move(expr));
    filter->name = dotted_name("a filter name");
    filter->filter = find_filter(filter->name);
    if (is_op("(")) arguments(*filter);
    expr = sealed(std::move(filter));
  }
  return expr;
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
  while (true) {
    if (is_op("|")) {
      expr = filters(std::move(expr));
    } else if (is_name("is")) {
      expr = test(std::move(expr));
    } else if (is_op("(")) {
      expr = postfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::test(ExprPtr expr) {
  int line = take().line;
  bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::kTest, line, std::move(expr));
  test->name = dotted_name("a test name");
  test->test = find_test(test->name);
  TokenType type = current().type;
  bool bare_argument = type == TokenType::kName || type == TokenType::kString || type == TokenType::kInteger ||
                       type == TokenType::kFloat || is_op("[") || is_op("{");
  if (is_op("(")) {
    arguments(*test);
  } else if (bare_argument && !is_any_name({"else", "or", "and"})) {
    if (is_name("is")) error("tests cannot be chained with is");
    // Only literals and names may follow, and no filters: `x is divisibleby 3`, `x is in names.short`.
    test->args.push_back(postfix(primary()));
  }
  test = sealed(std::move(test));
  return negated ? make(ExprKind::kNot, line, std::move(test)) : std::move(test);
}

}  // namespace godwit::jinja
