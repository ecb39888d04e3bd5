#include "text/jinja/parser.h"

namespace godwit::jinja {

Parser::Nested::Nested(Parser& p) : parser(p) {
  if (++parser.nesting_ > parser.limits_.max_nesting) {
    parser.nesting_--;
    syntax_error(parser.current().line, fmt::format("nesting is deeper than {}", parser.limits_.max_nesting),
                 ErrorCode::kExhausted);
  }
}

Token Parser::take() {
  Token token = tokens_[pos_];
  if (pos_ + 1 < tokens_.size()) pos_++;
  return token;
}

bool Parser::is_any_name(Names names) const {
  for (std::string_view name : names) {
    if (is_name(name)) return true;
  }
  return false;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  pos_++;
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  pos_++;
  return true;
}

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = current();
  std::string found;
  switch (token.type) {
    case TokenType::kText:
      found = "template text";
      break;
    case TokenType::kBlockBegin:
      found = "'{%'";
      break;
    case TokenType::kBlockEnd:
      found = "'%}'";
      break;
    case TokenType::kVariableBegin:
      found = "'{{'";
      break;
    case TokenType::kVariableEnd:
      found = "'}}'";
      break;
    case TokenType::kEnd:
      found = "the end of the template";
      break;
    default:
      found = "'" + token.text + "'";
  }
  error(fmt::format("expected {}, found {}", wanted, found));
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void Parser::expect(TokenType type, std::string_view what) {
  if (current().type != type) unexpected(what);
  pos_ += type != TokenType::kEnd;
}

std::string Parser::expect_name(std::string_view what) {
  if (current().type != TokenType::kName) unexpected(what);
  return take().text;
}

Body Parser::parse() {
  Body body = body_until({});
  if (current().type != TokenType::kEnd) unexpected("the end of the template");
  return body;
}

Body Parser::body_until(Names ends) {
  Nested nested(*this);
  Body body;
  while (current().type != TokenType::kEnd) {
    Token token = take();
    if (token.type == TokenType::kText) {
      auto stmt = std::make_unique<Stmt>();
      stmt->line = token.line;
      stmt->text = std::make_shared<const Text>(std::move(token.text));
      body.push_back(std::move(stmt));
    } else if (token.type == TokenType::kVariableBegin) {
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = StmtKind::kOutput;
      stmt->line = token.line;
      stmt->expr = tuple(true, false);
      expect(TokenType::kVariableEnd, "'}}'");
      body.push_back(std::move(stmt));
    } else {
      if (is_any_name(ends)) return body;
      int line = current().line;
      auto stmt = statement();
      stmt->line = line;
      expect(TokenType::kBlockEnd, "'%}'");
      body.push_back(std::move(stmt));
    }
  }
  if (ends.size() > 0) unexpected(fmt::format("{{% {} %}}", *ends.begin()));
  return body;
}

Body Parser::block(Names ends) {
  skip_op(":");
  expect(TokenType::kBlockEnd, "'%}'");
  return body_until(ends);
}

std::unique_ptr<Stmt> Parser::statement() {
  if (current().type != TokenType::kName) unexpected("a tag name");
  if (is_name("if")) return if_statement();
  if (is_name("for")) return for_statement();
  if (is_name("set")) return set_statement();
  if (is_name("with")) return with_statement();
  if (is_name("call")) return call_statement();
  auto stmt = std::make_unique<Stmt>();
  std::string tag = take().text;
  if (tag == "macro") {
    stmt->kind = StmtKind::kMacro;
    stmt->callable.name = expect_name("a macro name");
    signature(stmt->callable);
    callable_body(stmt->callable, "endmacro");
  } else if (tag == "filter") {
    stmt->kind = StmtKind::kFilter;
    stmt->expr = filters(nullptr, true);
    stmt->body = block({"endfilter"});
    take();
  } else if (tag == "generation") {
    stmt->kind = StmtKind::kScope;
    stmt->body = block({"endgeneration"});
    take();
  } else if (tag == "print") {
    stmt->kind = StmtKind::kOutput;
    stmt->expr = expression();
  } else if (tag == "break" || tag == "continue") {
    stmt->kind = tag == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    if (loops_ == 0) error(fmt::format("{{% {} %}} outside a for loop", tag));
  } else {
    for (std::string_view known : {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
      if (tag == known) {
        syntax_error(current().line, fmt::format("the tag {{% {} %}} is not supported", tag), ErrorCode::kUnsupported);
      }
    }
    error(fmt::format("unknown or misplaced tag {{% {} %}}", tag));
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::if_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kIf;
  do {
    take();
    ExprPtr condition = tuple(false, false);
    Body body = block({"endif", "elif", "else"});
    stmt->branches.emplace_back(std::move(condition), std::move(body));
  } while (is_name("elif"));
  if (skip_name("else")) stmt->orelse = block({"endif"});
  take();
  return stmt;
}

std::unique_ptr<Stmt> Parser::for_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kFor;
  take();
  stmt->target = target(false, {"in"});
  if (!skip_name("in")) unexpected("'in'");
  stmt->expr = tuple(false, false, {"recursive"});
  if (skip_name("if")) stmt->test = expression();
  if (is_name("recursive")) {
    syntax_error(current().line, "recursive for loops are not supported", ErrorCode::kUnsupported);
  }
  loops_++;
  stmt->body = block({"endfor", "else"});
  loops_--;
  if (skip_name("else")) stmt->orelse = block({"endfor"});
  take();
  return stmt;
}

std::unique_ptr<Stmt> Parser::set_statement() {
  auto stmt = std::make_unique<Stmt>();
  take();
  stmt->target = target(true);
  if (skip_op("=")) {
    stmt->kind = StmtKind::kSet;
    stmt->expr = tuple(true, false);
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  stmt->expr = filters(nullptr);
  stmt->body = block({"endset"});
  take();
  return stmt;
}

std::unique_ptr<Stmt> Parser::with_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kWith;
  take();
  while (current().type != TokenType::kBlockEnd) {
    if (!stmt->bindings.empty()) expect_op(",");
    ExprPtr name = target(false);
    expect_op("=");
    stmt->bindings.emplace_back(std::move(name), expression());
  }
  stmt->body = block({"endwith"});
  take();
  return stmt;
}

std::unique_ptr<Stmt> Parser::call_statement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kCall;
  take();
  stmt->callable.name = "caller";
  if (is_op("(")) signature(stmt->callable);
  int line = current().line;
  stmt->expr = expression();
  if (stmt->expr->kind != ExprKind::kCall) syntax_error(line, "{% call %} needs a call of a macro");
  callable_body(stmt->callable, "endcall");
  return stmt;
}

void Parser::signature(Callable& callable) {
  expect_op("(");
  while (!is_op(")")) {
    if (!callable.params.empty()) expect_op(",");
    callable.params.push_back(expect_name("a parameter name"));
    if (skip_op("=")) {
      callables_.push_back(&callable);
      callable.defaults.push_back(expression());
      callables_.pop_back();
    } else if (!callable.defaults.empty()) {
      error("a parameter without a default follows one with a default");
    }
  }
  expect_op(")");
}

void Parser::callable_body(Callable& callable, std::string_view end) {
  callables_.push_back(&callable);
  int outer_loops = std::exchange(loops_, 0);
  callable.body = block({end});
  loops_ = outer_loops;
  callables_.pop_back();
  take();
}

void parse_template(std::string_view source, const Limits& limits, Ast& ast) {
  if (source.size() > limits.max_template_bytes) {
    raise(ErrorCode::kExhausted, "the template has {} bytes; the limit is {}", source.size(),
          limits.max_template_bytes);
  }
  ast.body = Parser(tokenize(source), limits).parse();
}

}  // namespace godwit::jinja
