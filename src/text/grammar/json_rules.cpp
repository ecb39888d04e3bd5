#include "text/grammar/json_rules.h"

#include <functional>

#include "base/result.h"
#include "text/grammar/pattern.h"
#include "text/utf8.h"

namespace godwit {
namespace {

constexpr int kMostIndent = 32, kMostTabs = 8;
constexpr int64_t kBlock = 64;  // characters of a long bounded string that are counted in a rule of their own
constexpr std::string_view kHex = "0123456789abcdefABCDEF";

}  // namespace

JsonRules::Rule JsonRules::memo(const std::string& name, const std::function<void(Rule)>& build) {
  if (const auto it = rules_.find(name); it != rules_.end()) return it->second;
  const Rule rule = rules_[name] = b_.rule();
  build(rule);
  return rule;
}

JsonRules::Node JsonRules::space(Node from) {
  const Rule some = memo("space", [&](Rule r) {
    b_.byte(r.start, ' ', ' ', r.end);
    const Node line = b_.text(r.start, "\n");
    b_.skip(line, r.end);
    for (const auto& [character, most] : {std::pair(' ', kMostIndent), std::pair('\t', kMostTabs)}) {
      Node at = line;
      for (int i = 0; i < most; ++i) {
        at = b_.text(at, std::string_view(&character, 1));
        b_.skip(at, r.end);
      }
    }
  });
  const Node to = b_.node();
  b_.skip(from, to);
  b_.call(from, some, to);
  return to;
}

JsonRules::Node JsonRules::colon(Node from) {
  const Node at = b_.text(from, ":"), to = b_.node();
  b_.skip(at, to);
  b_.byte(at, ' ', ' ', to);
  return to;
}

// The four digits of \u and, for the first half of a pair, the second half too.
void JsonRules::unicode_escape(Node from, Node to) {
  const Node three = b_.node(), two = b_.node(), one = b_.node(), d = b_.node(), pair_two = b_.node(),
             pair_one = b_.node(), pair = b_.node();
  b_.any_of(from, "0123456789abcefABCEF", three);
  b_.any_of(from, "dD", d);
  b_.any_of(d, "01234567", two);
  b_.any_of(d, "89abAB", pair_two);
  b_.any_of(three, kHex, two);
  b_.any_of(two, kHex, one);
  b_.any_of(one, kHex, to);
  b_.any_of(pair_two, kHex, pair_one);
  b_.any_of(pair_one, kHex, pair);
  const Node second = b_.text(pair, "\\u"), second_d = b_.node();
  b_.any_of(second, "dD", second_d);
  b_.any_of(second_d, "cdefCDEF", two);
}

void JsonRules::character(Node from, Node to) {
  b_.byte(from, 0x20, '"' - 1, to);
  b_.byte(from, '"' + 1, '\\' - 1, to);
  b_.byte(from, '\\' + 1, 0x7F, to);
  // UTF-8 of two to four bytes; the ways share their last bytes.
  const Node one = b_.node(), two = b_.node(), three = b_.node();
  b_.byte(one, 0x80, 0xBF, to);
  b_.byte(two, 0x80, 0xBF, one);
  b_.byte(three, 0x80, 0xBF, two);
  b_.byte(from, 0xC2, 0xDF, one);
  b_.byte(from, 0xE1, 0xEC, two);
  b_.byte(from, 0xEE, 0xEF, two);
  b_.byte(from, 0xF1, 0xF3, three);
  auto narrow = [&](uint8_t lead, uint8_t first, uint8_t last, Node rest) {
    const Node at = b_.node();
    b_.byte(from, lead, lead, at);
    b_.byte(at, first, last, rest);
  };
  narrow(0xE0, 0xA0, 0xBF, one);
  narrow(0xED, 0x80, 0x9F, one);
  narrow(0xF0, 0x90, 0xBF, two);
  narrow(0xF4, 0x80, 0x8F, two);
  const Node escape = b_.node(), unicode = b_.node();
  b_.byte(from, '\\', '\\', escape);
  b_.any_of(escape, "\"\\/bfnrt", to);
  b_.byte(escape, 'u', 'u', unicode);
  unicode_escape(unicode, to);
}

JsonRules::Node JsonRules::exactly(Node from, int64_t count) {
  const Rule block = memo("block", [&](Rule r) {
    Node at = r.start;
    for (int i = 0; i < kBlock; ++i) {
      const Node next = b_.node();
      character(at, next);
      at = next;
    }
    b_.skip(at, r.end);
  });
  for (; count >= kBlock && !b_.full(); count -= kBlock) {
    const Node next = b_.node();
    b_.call(from, block, next);
    from = next;
  }
  for (; count > 0 && !b_.full(); --count) {
    const Node next = b_.node();
    character(from, next);
    from = next;
  }
  return from;
}

// The closing quote belongs to the rule of the rest: of a rule that may end behind any character, next to nothing could
// be found out ahead (see constraint.h).
void JsonRules::at_most(Node from, int64_t count, Node closed) {
  const auto counted = [&](Node at, int64_t most, Node end) {
    for (; most > 0 && !b_.full(); --most) {
      b_.byte(at, '"', '"', end);
      const Node next = b_.node();
      character(at, next);
      at = next;
    }
    b_.byte(at, '"', '"', end);
  };
  const Rule rest = memo("less than a block", [&](Rule r) { counted(r.start, kBlock - 1, r.end); });
  for (; count >= kBlock && !b_.full(); count -= kBlock) {
    b_.call(from, rest, closed);
    from = exactly(from, kBlock);
  }
  counted(from, count, closed);
}

JsonRules::Rule JsonRules::string(int64_t min, std::optional<int64_t> max) {
  return memo(fmt::format("string {} {}", min, max.value_or(-1)), [&](Rule r) {
    const Node inside = exactly(b_.text(r.start, "\""), min);
    if (max) return at_most(inside, *max - min, r.end);
    const Node loop = b_.node();
    b_.skip(inside, loop);
    character(loop, loop);
    b_.byte(loop, '"', '"', r.end);
  });
}

Result<JsonRules::Rule> JsonRules::pattern(const std::string& pattern) {
  Status status;
  const Rule rule = memo("pattern " + pattern, [&](Rule r) {
    const Node inside = b_.text(r.start, "\""), end = b_.node();
    status = add_json_pattern(b_, pattern, inside, end);
    b_.text(end, "\"", r.end);
  });
  GODWIT_TRY(status);
  return rule;
}

Result<JsonRules::Rule> JsonRules::number(const NumberBounds& n) {
  auto text = [](const std::optional<Decimal>& d) {
    return d ? fmt::format("{}{}.{}", d->negative ? "-" : "", d->whole, d->fraction) : std::string("none");
  };
  const std::string name = fmt::format("number {} {} {} {} {} {}", n.integer, text(n.least), n.above_least,
                                       text(n.most), n.below_most, text(n.multiple_of));
  Status status;
  const Rule rule = memo(name, [&](Rule r) { status = add_number(b_, n, r.start, r.end); });
  GODWIT_TRY(status);
  return rule;
}

JsonRules::Rule JsonRules::other_key(const std::vector<std::string>& keys) {
  // A tree of the keys by characters: a key is another one as soon as it leaves the tree, or ends where none does.
  struct Branch {
    std::map<char32_t, Branch> next;
    bool is_key = false;
  };
  Branch tree;
  std::string name = "other key";
  for (const std::string& key : keys) {
    name += ' ' + Json(key).dump();
    Branch* branch = &tree;
    for (size_t pos = 0; pos < key.size();) {
      const Utf8Char c = utf8_at(key, pos);
      branch = &branch->next[c.code_point];
      pos += c.length;
    }
    branch->is_key = true;
  }
  return memo(name, [&](Rule r) {
    const Node rest = b_.node(), end = b_.node();
    auto plain = [&](Node from, char32_t first, char32_t last, Node to) {
      const auto part = [&](char32_t begin, char32_t stop) {
        b_.characters(from, std::max(first, begin), std::min(last, stop), to);
      };
      part(0x20, '"' - 1);
      part('"' + 1, '\\' - 1);
      part('\\' + 1, 0x10FFFF);
    };
    plain(rest, 0x20, 0x10FFFF, rest);
    b_.text(rest, "\"", end);
    std::vector<std::pair<const Branch*, Node>> work = {{&tree, b_.text(r.start, "\"")}};
    while (!work.empty() && !b_.full()) {
      const auto [branch, node] = work.back();
      work.pop_back();
      if (!branch->is_key) b_.text(node, "\"", end);
      char32_t first = 0x20;
      for (const auto& [c, next] : branch->next) {
        if (c > first) plain(node, first, c - 1, rest);
        const Node to = b_.node();
        plain(node, c, c, to);
        work.emplace_back(&next, to);
        first = c + 1;
      }
      plain(node, first, 0x10FFFF, rest);
    }
    b_.skip(end, r.end);
  });
}

JsonRules::Rule JsonRules::any() {
  return memo("any", [&](Rule r) {
    for (const char* word : {"true", "false", "null"}) b_.text(r.start, word, r.end);
    b_.call(r.start, string(), r.end);
    b_.call(r.start, *number({}), r.end);
    for (const char* brackets : {"{}", "[]"}) {
      const Node first = space(b_.text(r.start, std::string_view(brackets, 1))), before = b_.node(), after = b_.node();
      b_.text(first, brackets + 1, r.end);
      b_.skip(first, before);
      Node value = before;
      if (*brackets == '{') {
        const Node named = b_.node();
        b_.call(before, string(), named);
        value = colon(named);
      }
      b_.call(value, r, after);
      b_.skip(space(b_.text(after, ",")), before);
      b_.text(space(after), brackets + 1, r.end);
    }
  });
}

void JsonRules::constant(const Json& value, Node from, Node to) {
  if (!value.is_structured()) return b_.text(from, value.dump(), to);
  const bool object = value.is_object();
  Node at = space(b_.text(from, object ? "{" : "["));
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) at = space(b_.text(at, ","));
    first = false;
    if (object) at = colon(b_.text(at, Json(key).dump()));
    const Node after = b_.node();
    constant(item, at, after);
    at = after;
  }
  b_.text(first ? at : space(at), object ? "}" : "]", to);
}

}  // namespace godwit
