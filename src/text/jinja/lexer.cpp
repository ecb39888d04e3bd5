#include "text/jinja/lexer.h"

#include <array>
#include <cstdlib>

#include "text/jinja/unicode.h"

namespace godwit::jinja {

void syntax_error(int line, std::string_view message, ErrorCode code) {
  raise(code, "line {}: {}", line, message);
}

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

// All line ends become \n, and one at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); i++) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') i++;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) outside();
    emit(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string_view message) const { syntax_error(line_, message); }

  void emit(TokenType type, std::string text = {}, Value number = {}) {
    tokens_.push_back(Token{type, line_, std::move(text), std::move(number)});
  }

  // Moves past `bytes`, keeping the line count and whether a tag here would be the first thing on its line.
  void advance(size_t bytes) {
    if (bytes == 0) return;
    for (char c : rest_.substr(0, bytes)) line_ += c == '\n';
    line_starting_ = rest_[bytes - 1] == '\n';
    rest_.remove_prefix(bytes);
  }

  size_t blanks_at(size_t pos) const {
    std::string_view tail = rest_.substr(pos);
    return tail.size() - strip_left(tail).size();
  }

  bool at(size_t pos, std::string_view what) const {
    return pos <= rest_.size() && rest_.substr(pos).starts_with(what);
  }

  // Template data up to `tag`, less the whitespace that the tag's sign or lstrip_blocks removes.
  void emit_text(size_t tag, char sign, bool may_lstrip) {
    std::string_view text = rest_.substr(0, tag);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && may_lstrip) {
      size_t newline = text.rfind('\n');
      size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && strip_left(text.substr(line_start)).empty()) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) emit(TokenType::kText, std::string(text));
  }

  char sign_at(size_t pos) const {
    return pos < rest_.size() && (rest_[pos] == '-' || rest_[pos] == '+') ? rest_[pos] : '\0';
  }

  void outside() {
    size_t tag = 0;
    while (true) {
      tag = rest_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 == rest_.size()) {
        emit(TokenType::kText, std::string(rest_));
        advance(rest_.size());
        return;
      }
      char next = rest_[tag + 1];
      if (next == '#' || next == '%' || next == '{') break;
      tag++;
    }
    char type = rest_[tag + 1];
    char sign = sign_at(tag + 2);
    emit_text(tag, sign, type != '{');
    size_t raw_end = type == '%' ? raw_begin(tag + 2 + (sign != 0)) : 0;
    advance(raw_end != 0 ? raw_end : tag + 2 + (sign != 0));
    if (raw_end != 0) {
      raw();
    } else if (type == '#') {
      comment();
    } else {
      inside(type == '%');
    }
  }

  // Where a `{% raw %}` whose inside starts at `pos` ends, or 0 if this is another tag.
  size_t raw_begin(size_t pos) const {
    pos += blanks_at(pos);
    if (!at(pos, "raw")) return 0;
    pos += 3;
    pos += blanks_at(pos);
    if (at(pos, "%}")) return pos + 2;
    return at(pos, "-%}") ? pos + 3 + blanks_at(pos + 3) : 0;
  }

  // Where a closing mark at `pos` ends, with the whitespace it swallows; 0 if none is there.
  size_t close_at(size_t pos, std::string_view mark, bool trims_newline) const {
    if (at(pos, mark)) return pos + 2 + (trims_newline && at(pos + 2, "\n"));
    if (!at(pos + 1, mark)) return 0;
    if (rest_[pos] == '-') return pos + 3 + blanks_at(pos + 3);
    return trims_newline && rest_[pos] == '+' ? pos + 3 : 0;
  }

  void raw() {
    for (size_t tag = rest_.find("{%"); tag != std::string_view::npos; tag = rest_.find("{%", tag + 1)) {
      char sign = sign_at(tag + 2);
      size_t pos = tag + 2 + (sign != 0);
      pos += blanks_at(pos);
      if (!at(pos, "endraw")) continue;
      pos += 6;
      pos += blanks_at(pos);
      size_t end = close_at(pos, "%}", true);
      if (end == 0) continue;
      emit_text(tag, sign, true);
      advance(end);
      return;
    }
    error("the raw block is never closed");
  }

  void comment() {
    for (size_t pos = 0; pos < rest_.size(); pos++) {
      if (size_t end = close_at(pos, "#}", true)) {
        advance(end);
        return;
      }
    }
    error("the comment is never closed");
  }

  void inside(bool block) {
    emit(block ? TokenType::kBlockBegin : TokenType::kVariableBegin);
    std::string open_brackets;
    while (true) {
      if (rest_.empty()) error(block ? "a {% is never closed" : "a {{ is never closed");
      if (open_brackets.empty()) {
        if (size_t end = close_at(0, block ? "%}" : "}}", block)) {
          emit(block ? TokenType::kBlockEnd : TokenType::kVariableEnd);
          advance(end);
          return;
        }
      }
      char c = rest_[0];
      if (size_t blanks = blanks_at(0)) {
        advance(blanks);
      } else if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        size_t end = 1;
        while (end < rest_.size() && is_name_part(rest_[end])) end++;
        emit(TokenType::kName, std::string(rest_.substr(0, end)));
        advance(end);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation(open_brackets);
      }
    }
  }

  void operation(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    size_t length = 1;
    for (std::string_view pair : kPairs) {
      if (rest_.starts_with(pair)) length = 2;
    }
    char c = rest_[0];
    if (length == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      error(fmt::format("unexpected character '{}'", rest_.substr(0, decode_at(rest_, 0).bytes)));
    }
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) error(fmt::format("unexpected '{}'", c));
      open_brackets.pop_back();
    }
    emit(TokenType::kOperator, std::string(rest_.substr(0, length)));
    advance(length);
  }

  size_t digits_at(size_t pos, int base) const {
    size_t end = pos;
    while (end < rest_.size()) {
      bool separator = rest_[end] == '_' && end + 1 < rest_.size();
      if (hex_digit(rest_[end + separator]) >= base) break;
      end += 1 + separator;
    }
    return end;
  }

  void number() {
    bool after_dot = !tokens_.empty() && tokens_.back().type == TokenType::kOperator && tokens_.back().text == "." &&
                     rest_.data() > source_.data() && rest_.data()[-1] == '.';
    size_t end = digits_at(0, 10);
    bool real = false;
    if (!after_dot) {
      if (at(end, ".") && end + 1 < rest_.size() && is_digit(rest_[end + 1])) {
        end = digits_at(end + 1, 10);
        real = true;
      }
      if (at(end, "e") || at(end, "E")) {
        size_t exponent = end + 1 + (sign_at(end + 1) != 0);
        if (exponent < rest_.size() && is_digit(rest_[exponent])) {
          end = digits_at(exponent, 10);
          real = true;
        }
      }
    }
    if (real) {
      std::string digits;
      for (char c : rest_.substr(0, end)) {
        if (c != '_') digits += c;
      }
      emit(TokenType::kFloat, digits, Value::of(std::strtod(digits.c_str(), nullptr)));
      advance(end);
    } else {
      integer(end);
    }
  }

  void integer(size_t end) {
    int base = 10;
    size_t begin = 0;
    if (rest_[0] == '0' && rest_.size() > 2) {
      char mark = static_cast<char>(rest_[1] | 0x20);
      int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      if (marked != 0 && digits_at(2, marked) > 2) {
        base = marked;
        begin = 2;
        end = digits_at(2, marked);
      }
    }
    Int value = 0;
    for (char c : rest_.substr(begin, end - begin)) {
      if (c == '_') continue;
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{hex_digit(c)}, &value)) {
        error("the integer is too large");
      }
    }
    emit(TokenType::kInteger, std::string(rest_.substr(0, end)), Value::of(value));
    advance(end);
  }

  void string(char quote) {
    std::string text;
    size_t pos = 1;
    while (true) {
      if (pos >= rest_.size()) error("a string is never closed");
      char c = rest_[pos];
      if (c == quote) break;
      if (c != '\\') {
        text += c;
        pos++;
        continue;
      }
      if (pos + 1 >= rest_.size()) error("a string is never closed");
      pos = escape(pos + 1, text);
    }
    emit(TokenType::kString, std::move(text));
    advance(pos + 1);
  }

  // The escape whose character after the backslash is at `pos`; returns the position after it.
  size_t escape(size_t pos, std::string& text) {
    static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    char c = rest_[pos];
    if (size_t i = kFrom.find(c); i != std::string_view::npos) {
      text += kTo[i];
      return pos + 1;
    }
    if (c == '\n') return pos + 1;
    if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t end = pos;
      while (end < pos + 3 && end < rest_.size() && rest_[end] >= '0' && rest_[end] <= '7') {
        code = code * 8 + static_cast<uint32_t>(rest_[end++] - '0');
      }
      append_utf8(text, code);
      return end;
    }
    if (c == 'N') syntax_error(line_, "\\N{...} in a string is not supported", ErrorCode::kUnsupported);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      text += '\\';
      return pos;
    }
    uint32_t code = hex(pos + 1, digits);
    pos += 1 + digits;
    if (code >= 0xd800 && code < 0xdc00 && at(pos, "\\u")) {
      uint32_t low = hex(pos + 2, 4);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        pos += 6;
      }
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) error("a string escape is not a Unicode character");
    append_utf8(text, code);
    return pos;
  }

  uint32_t hex(size_t pos, size_t digits) const {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
      int digit = pos + i < rest_.size() ? hex_digit(rest_[pos + i]) : 99;
      if (digit > 15) error("a \\x, \\u or \\U escape lacks digits");
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    return code;
  }

  const std::string source_;
  std::string_view rest_;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace godwit::jinja
