#include "text/regex_dialect.h"

#include <algorithm>
#include <array>

#include "base/result.h"

namespace godwit {
namespace {

// Inside a class. PCRE2's own \s and \w differ from Oniguruma's on a few characters (U+180E; marks, connectors and the
// Latin-1 digits that Oniguruma counts as word characters).
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kNotSpace = "\\P{White_Space}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// PCRE2 reads \p{Han} as "script extensions"; Oniguruma as the script itself.
constexpr std::array<std::string_view, 14> kScripts = {"Han",      "Hiragana", "Katakana",   "Hangul",  "Latin",
                                                       "Greek",    "Cyrillic", "Arabic",     "Hebrew",  "Thai",
                                                       "Armenian", "Bengali",  "Devanagari", "Georgian"};

class Translator {
 public:
  Translator(std::string_view in, std::string_view label) : in_(in), label_(label) {}

  Result<std::string> run() {
    // `\s+$` tries every blank of a long run in turn, in quadratic time. Starting only at a run's first blank finds the
    // same matches.
    if (in_ == "\\s+$") return std::string("(?:\\G|(?<!\\p{White_Space}))\\p{White_Space}+$");
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        GODWIT_TRY(escape());
      } else if (in_class_) {
        GODWIT_TRY(class_char(c));
      } else if (c == '[') {
        open_class();
      } else {
        out_ += c;
        ++pos_;
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> unsupported(std::string_view what) const {
    return errorf(ErrorCode::kUnsupported, "{}: the split pattern '{}' uses {}, which is not supported", label_, in_,
                  what);
  }

  void open_class() {
    in_class_ = true;
    out_ += '[';
    ++pos_;
    if (pos_ < in_.size() && in_[pos_] == '^') out_ += in_[pos_++];
    if (pos_ < in_.size() && in_[pos_] == ']') {
      out_ += "\\]";
      ++pos_;
    }
  }

  Status class_char(char c) {
    ++pos_;
    if (c == '[') {
      // A plain class inside a class adds its members: the brackets may go.
      const char next = pos_ < in_.size() ? in_[pos_] : '\0';
      if (next == '^' || next == ':' || next == ']') return unsupported("a negated or named class inside a class");
      ++nested_;
      return {};
    }
    if (c == '&' && pos_ < in_.size() && in_[pos_] == '&') return unsupported("a class intersection");
    if (c == ']' && nested_ > 0) {
      --nested_;
      return {};
    }
    if (c == ']') in_class_ = false;
    out_ += c;
    return {};
  }

  Status escape() {
    if (pos_ + 1 >= in_.size()) return unsupported("a backslash at its end");
    const char c = in_[pos_ + 1];
    switch (c) {
      case 's':
        return emit(kSpace);
      case 'S':
        return emit(kNotSpace);
      case 'd':
        return emit("\\p{Nd}");
      case 'D':
        return emit("\\P{Nd}");
      case 'w':
        if (in_class_) return emit(kWord);
        return emit(fmt::format("[{}]", kWord));
      case 'W':
        if (in_class_) return unsupported("\\W inside a class");
        return emit(fmt::format("[^{}]", kWord));
      case 'p':
      case 'P':
        return property();
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'K':
      case 'k':
      case 'g':
      case 'C':
      case 'Q':
      case 'E':
      case 'y':
      case 'Y':
        return unsupported(fmt::format("the escape '\\{}'", c));
      default:
        break;
    }
    out_ += in_.substr(pos_, 2);
    pos_ += 2;
    return {};
  }

  Status emit(std::string_view text) {
    out_ += text;
    pos_ += 2;
    return {};
  }

  Status property() {
    const size_t close = in_.find('}', pos_);
    if (in_.substr(pos_ + 2, 1) != "{" || close == in_.npos) return unsupported("a property without braces");
    std::string_view name = in_.substr(pos_ + 3, close - pos_ - 3);
    out_ += in_.substr(pos_, 2);
    out_ += '{';
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end()) out_ += "sc:";
    out_ += name;
    out_ += '}';
    pos_ = close + 1;
    return {};
  }

  std::string_view in_;
  std::string_view label_;
  std::string out_;
  size_t pos_ = 0;
  bool in_class_ = false;
  int nested_ = 0;  // classes open inside the class
};

}  // namespace

Result<std::string> onig_to_pcre(std::string_view pattern, std::string_view label) {
  return Translator(pattern, label).run();
}

}  // namespace godwit
