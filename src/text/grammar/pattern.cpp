#include "text/grammar/pattern.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "text/utf8.h"

namespace godwit {
namespace {

using Node = GrammarBuilder::Node;
constexpr char32_t kLastCharacter = 0x10FFFF;
constexpr int kMostRepeats = 10'000, kDeepestGroup = 32;
constexpr size_t kMostPatternBytes = 4096;

struct Range {
  char32_t first, last;
  bool operator==(const Range&) const = default;
  bool operator<(const Range& other) const { return first != other.first ? first < other.first : last < other.last; }
};
using CharSet = std::vector<Range>;

CharSet complement(CharSet set, char32_t first, char32_t last) {
  std::sort(set.begin(), set.end());
  CharSet result;
  for (const Range& range : set) {
    if (range.first > first) result.push_back({first, std::min<char32_t>(range.first - 1, last)});
    first = std::max<char32_t>(first, range.last + 1);
    if (first > last) return result;
  }
  result.push_back({first, last});
  return result;
}

struct Expression {
  enum Kind { kSet, kSequence, kAlternatives, kRepeat } kind = kSequence;
  CharSet set{};
  std::vector<Expression> parts{};
  int min = 0, max = -1;                              // of kRepeat; -1: no limit
  bool anchored_start = false, anchored_end = false;  // of the whole pattern's alternatives
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  Result<Expression> parse() {
    if (text_.size() > kMostPatternBytes) return bad(fmt::format("it has more than {} bytes", kMostPatternBytes));
    GODWIT_ASSIGN(Expression whole, alternatives(0));
    if (pos_ < text_.size()) return bad("a ')' closes nothing");
    return whole;
  }

 private:
  tl::unexpected<Error> bad(std::string_view why) const {
    return errorf(ErrorCode::kUnsupported, "the pattern '{:.60}' is not supported: {} (at offset {})", text_, why,
                  pos_);
  }
  bool at(char c) const { return pos_ < text_.size() && text_[pos_] == c; }
  bool take(char c) { return at(c) ? (++pos_, true) : false; }
  char32_t character() {
    const Utf8Char c = utf8_at(text_, pos_);
    pos_ += c.length;
    return c.code_point;
  }

  Result<Expression> alternatives(int depth) {
    if (depth > kDeepestGroup) return bad("groups are nested too deeply");
    Expression all{.kind = Expression::kAlternatives};
    do {
      GODWIT_ASSIGN(Expression one, sequence(depth));
      all.parts.push_back(std::move(one));
    } while (take('|'));
    return all;
  }

  Result<Expression> sequence(int depth) {
    Expression all;
    if (depth == 0 && take('^')) all.anchored_start = true;
    while (pos_ < text_.size() && !at('|') && !at(')')) {
      if (depth == 0 && at('$') && (pos_ + 1 == text_.size() || text_[pos_ + 1] == '|')) {
        ++pos_;
        all.anchored_end = true;
        break;
      }
      GODWIT_ASSIGN(Expression one, atom(depth));
      GODWIT_ASSIGN(Expression repeated, quantified(std::move(one)));
      all.parts.push_back(std::move(repeated));
    }
    return all;
  }

  Result<Expression> atom(int depth) {
    if (take('(')) {
      if (take('?') && !take(':')) return bad("of groups with '?' only (?: ) is");
      GODWIT_ASSIGN(Expression inner, alternatives(depth + 1));
      if (!take(')')) return bad("a group is not closed");
      return inner;
    }
    if (take('[')) return char_class();
    if (take('.')) return Expression{.kind = Expression::kSet, .set = any()};
    if (at('^') || at('$')) return bad("an anchor stands inside");
    if (at('*') || at('+') || at('?') || at('{')) return bad("a quantifier has nothing to repeat");
    GODWIT_ASSIGN(CharSet set, single());
    return Expression{.kind = Expression::kSet, .set = std::move(set)};
  }

  static CharSet any() { return {{0x20, 0x7E}, {0xA0, 0x2027}, {0x202A, kLastCharacter}}; }

  Result<Expression> quantified(Expression one) {
    int min = 0, max = -1;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (at('{')) {
      ++pos_;
      GODWIT_ASSIGN(min, number());
      max = min;
      if (take(',')) {
        max = -1;
        if (!at('}')) {
          GODWIT_ASSIGN(max, number());
          if (max < min) return bad("a quantifier's bounds are in the wrong order");
        }
      }
      if (!take('}')) return bad("a quantifier is not closed");
    } else {
      return one;
    }
    take('?');
    if (at('*') || at('+') || at('?') || at('{')) return bad("quantifiers follow one another");
    Expression repeat{.kind = Expression::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(one));
    return repeat;
  }

  Result<int> number() {
    const size_t begin = pos_;
    int value = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      value = value * 10 + (text_[pos_++] - '0');
      if (value > kMostRepeats) return bad(fmt::format("it repeats more than {} times", kMostRepeats));
    }
    if (pos_ == begin) return bad("a quantifier has no number");
    return value;
  }

  // A character, or an escape that may stand for several.
  Result<CharSet> single() {
    if (!take('\\')) {
      const char32_t c = character();
      return CharSet{{c, c}};
    }
    if (pos_ >= text_.size()) return bad("it ends in a backslash");
    static const CharSet digits = {{'0', '9'}}, word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                         space = {{'\t', '\r'}, {' ', ' '}};
    const char c = text_[pos_];
    if (c >= '1' && c <= '9') return bad("it refers back to a group");
    ++pos_;
    switch (c) {
      case 'd':
        return digits;
      case 'w':
        return word;
      case 's':
        return space;
      case 'D':
        return complement(digits, 0x20, 0x7E);
      case 'W':
        return complement(word, 0x20, 0x7E);
      case 'S':
        return complement(space, 0x20, 0x7E);
      case 't':
        return CharSet{{'\t', '\t'}};
      case 'n':
        return CharSet{{'\n', '\n'}};
      case 'r':
        return CharSet{{'\r', '\r'}};
      case 'f':
        return CharSet{{'\f', '\f'}};
      case 'v':
        return CharSet{{'\v', '\v'}};
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      default:
        --pos_;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '0') return bad("this escape is unknown");
        const char32_t literal = character();
        return CharSet{{literal, literal}};
    }
  }

  Result<CharSet> hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = pos_ < text_.size() ? text_[pos_++] : ' ';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return bad("an escape has too few hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value >= 0xD800 && value < 0xE000) return bad("it escapes half of a character");
    return CharSet{{value, value}};
  }

  Result<Expression> char_class() {
    const bool negated = take('^');
    CharSet set;
    bool ascii = false;  // a class of characters that engines disagree on beyond ASCII
    while (!at(']')) {
      if (pos_ >= text_.size()) return bad("a class is not closed");
      if (at('[') && pos_ + 1 < text_.size() && text_[pos_ + 1] == ':') return bad("a class has a name");
      ascii |= at('\\') && pos_ + 1 < text_.size() && std::string_view("dwsDWS").find(text_[pos_ + 1]) != size_t(-1);
      GODWIT_ASSIGN(CharSet first, single());
      if (at('-') && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
        ++pos_;
        GODWIT_ASSIGN(CharSet last, single());
        const bool range = first.size() == 1 && last.size() == 1 && first[0].first == first[0].last &&
                           last[0].first == last[0].last && first[0].first <= last[0].first;
        if (!range) return bad("a range in a class makes no sense");
        set.push_back({first[0].first, last[0].first});
      } else {
        set.insert(set.end(), first.begin(), first.end());
      }
    }
    ++pos_;
    if (negated) set = complement(std::move(set), 0x20, ascii ? 0x7E : kLastCharacter);
    return Expression{.kind = Expression::kSet, .set = std::move(set)};
  }

  std::string_view text_;
  size_t pos_ = 0;
};

class Emitter {
 public:
  explicit Emitter(GrammarBuilder& builder) : b_(builder) {}

  void whole(const Expression& pattern, Node from, Node to) {
    for (const Expression& one : pattern.parts) {
      Node begin = b_.node(), end = b_.node();
      b_.skip(from, begin);
      b_.skip(end, to);
      if (!one.anchored_start) characters({{0x20, kLastCharacter}}, begin, begin);
      if (!one.anchored_end) characters({{0x20, kLastCharacter}}, end, end);
      add(one, begin, end);
    }
  }

 private:
  void characters(const CharSet& set, Node from, Node to) {
    for (const Range& range : set) add_json_character(b_, range.first, range.last, from, to);
  }

  void add(const Expression& e, Node from, Node to) {
    switch (e.kind) {
      case Expression::kSet:
        return characters(e.set, from, to);
      case Expression::kAlternatives:
        for (const Expression& part : e.parts) add(part, from, to);
        return;
      case Expression::kSequence:
        for (const Expression& part : e.parts) {
          const Node next = b_.node();
          add(part, from, next);
          from = next;
        }
        return b_.skip(from, to);
      case Expression::kRepeat:
        return repeat(e, from, to);
    }
  }

  void repeat(const Expression& e, Node from, Node to) {
    const Expression& part = e.parts[0];
    for (int i = 0; i < e.min && !b_.full(); ++i) {
      const Node next = b_.node();
      add(part, from, next);
      from = next;
    }
    if (e.max < 0) {
      const Node loop = b_.node();
      b_.skip(from, loop);
      add(part, loop, loop);
      return b_.skip(loop, to);
    }
    for (int i = e.min; i < e.max && !b_.full(); ++i) {
      b_.skip(from, to);
      const Node next = b_.node();
      add(part, from, next);
      from = next;
    }
    b_.skip(from, to);
  }

  GrammarBuilder& b_;
};

}  // namespace

Status add_json_pattern(GrammarBuilder& builder, std::string_view pattern, Node from, Node to) {
  GODWIT_ASSIGN(const Expression expression, Parser(pattern).parse());
  Emitter(builder).whole(expression, from, to);
  return {};
}

void add_json_character(GrammarBuilder& b, char32_t first, char32_t last, Node from, Node to) {
  for (char32_t c = first; c <= last && c < 0x20; ++c) {
    constexpr std::string_view kShort = "\b\f\n\r\t", kNames = "bfnrt", kHex = "0123456789abcdef";
    const size_t at = kShort.find(static_cast<char>(c));
    const std::string escape = at != std::string_view::npos ? std::string("\\") + kNames[at]
                                                            : std::string("\\u00") + kHex[c >> 4] + kHex[c & 15];
    b.text(from, escape, to);
  }
  auto inside = [&](char32_t c) { return first <= c && c <= last; };
  if (inside('"')) b.text(from, "\\\"", to);
  if (inside('\\')) b.text(from, "\\\\", to);
  const auto plain = [&](char32_t begin, char32_t end) {
    b.characters(from, std::max(first, begin), std::min(last, end), to);
  };
  plain(0x20, '"' - 1);
  plain('"' + 1, '\\' - 1);
  plain('\\' + 1, kLastCharacter);
}

}  // namespace godwit
