// Splits a template into text and tokens, applying whitespace control on the way: the parser sees only what counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace godwit::jinja {

enum class TokenType : uint8_t {
  kText,           // template data outside tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // name, operator, unescaped string or template data
  Value number;      // of kInteger and kFloat
};

// Throws Failure with the line in front of the message.
std::vector<Token> tokenize(std::string_view source);

[[noreturn]] void syntax_error(int line, std::string_view message, ErrorCode code = ErrorCode::kBadData);

}  // namespace godwit::jinja
