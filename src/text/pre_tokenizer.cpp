#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/result.h"
#include "text/byte_map.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace godwit {
namespace {

using Step = PreTokenizerStep;
using Kind = Step::Kind;

struct Part {
  TextRange range;
  bool match;
};

// The runs of characters for which `test` gives the same class; class 0 is "no match".
template <class Test>
void find_chars(std::string_view text, bool each, Test&& test, std::vector<TextRange>& out) {
  int previous = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    const int current = test(c.code_point);
    if (current != 0) {
      if (current == previous && !each) {
        out.back().end = pos + c.length;
      } else {
        out.push_back({pos, pos + c.length});
      }
    }
    previous = current;
    pos += c.length;
  }
}

void find_string(std::string_view text, std::string_view pattern, std::vector<TextRange>& out) {
  if (pattern.empty()) return;
  for (size_t hit = 0; (hit = text.find(pattern, hit)) != text.npos; hit += pattern.size()) {
    out.push_back({hit, hit + pattern.size()});
  }
}

Status find_matches(const Step& step, std::string_view text, RegexScratch& scratch, std::vector<TextRange>& out) {
  switch (step.kind) {
    case Kind::kSplitRegex:
      return step.regex.front().find_all(text, scratch, out);
    case Kind::kSplitString:
      return find_string(text, step.text, out), Status{};
    case Kind::kDigits:
      return find_chars(text, true, is_numeric_char, out), Status{};
    case Kind::kPunctuation:
      return find_chars(text, true, is_punctuation_char, out), Status{};
    case Kind::kSpaces:
      return find_chars(text, true, is_space_char, out), Status{};
    case Kind::kWords:
      find_chars(
          text, false, [](char32_t c) { return is_word_char(c)    ? 1
                                               : is_space_char(c) ? 0
                                                                  : 2; }, out);
      return {};
    case Kind::kMetaspace:
    case Kind::kBytes:
      break;
  }
  return {};
}

// Matches and the gaps between them, in order, without empty parts at the gaps.
void list_parts(size_t text_size, const std::vector<TextRange>& matches, bool invert, std::vector<Part>& parts) {
  size_t pos = 0;
  for (const TextRange& match : matches) {
    if (match.begin > pos) parts.push_back({{pos, match.begin}, invert});
    parts.push_back({match, !invert});
    pos = match.end;
  }
  if (pos < text_size) parts.push_back({{pos, text_size}, invert});
}

void merge_parts(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<TextRange>& out) {
  const size_t first = out.size();
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.match) out.push_back(part.range);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) out.push_back(part.range);
      break;
    case SplitBehavior::kContiguous:
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        const bool join = behavior == SplitBehavior::kContiguous ? part.match == previous : part.match && !previous;
        if (join && out.size() > first) {
          out.back().end = part.range.end;
        } else {
          out.push_back(part.range);
        }
        previous = part.match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->match && !previous && out.size() > first) {
          out.back().begin = part->range.begin;
        } else {
          out.push_back(part->range);
        }
        previous = part->match;
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      break;
  }
}

Status split_pieces(const Step& step, TextPieces& pieces, RegexScratch& scratch) {
  std::vector<TextRange> result, matches;
  std::vector<Part> parts;
  result.reserve(pieces.ranges.size());
  for (const TextRange& range : pieces.ranges) {
    const std::string_view text = std::string_view(pieces.text).substr(range.begin, range.end - range.begin);
    matches.clear();
    parts.clear();
    GODWIT_TRY(find_matches(step, text, scratch, matches));
    list_parts(text.size(), matches, step.invert, parts);
    const size_t first = result.size();
    merge_parts(parts, step.behavior, result);
    for (size_t i = first; i < result.size(); ++i) {
      result[i].begin += range.begin;
      result[i].end += range.begin;
    }
  }
  std::erase_if(result, [](const TextRange& range) { return range.begin == range.end; });
  pieces.ranges = std::move(result);
  return {};
}

// Rebuilds the text piece by piece; write(old piece, out) appends the new one.
template <class Write>
void rewrite(TextPieces& pieces, Write&& write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    TextRange& range = pieces.ranges[i];
    const size_t begin = text.size();
    write(i, range, std::string_view(pieces.text).substr(range.begin, range.end - range.begin), text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

Status apply_metaspace(const Step& step, TextPieces& pieces, bool at_start, bool prefix, RegexScratch& scratch) {
  rewrite(pieces, [&](size_t, const TextRange& range, std::string_view old, std::string& out) {
    const bool begins = at_start && range.begin == 0;
    const bool wanted = step.prefix == Step::Prefix::kAlways || (step.prefix == Step::Prefix::kFirst && begins);
    if (wanted && (prefix || range.begin != 0) && !old.starts_with(' ') && !old.starts_with(step.text)) {
      out += step.text;
    }
    for (const char c : old) {
      if (c == ' ') {
        out += step.text;
      } else {
        out += c;
      }
    }
  });
  if (!step.split) return {};
  Step split{Kind::kSplitString, SplitBehavior::kMergedWithNext};
  split.text = step.text;
  return split_pieces(split, pieces, scratch);
}

}  // namespace

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool PreTokenizer::byte_level() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Kind::kBytes; });
}

Result<TextPieces> PreTokenizer::apply(std::string text, bool at_start, bool prefix, RegexScratch& scratch) const {
  TextPieces pieces;
  pieces.text = std::move(text);
  if (!pieces.text.empty()) pieces.ranges.push_back({0, pieces.text.size()});
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (step.kind == Kind::kMetaspace) {
      GODWIT_TRY(apply_metaspace(step, pieces, at_start, prefix, scratch));
    } else if (step.kind != Kind::kBytes) {
      GODWIT_TRY(split_pieces(step, pieces, scratch));
    } else {
      if (step.prefix == Step::Prefix::kAlways) {
        rewrite(pieces, [&](size_t, const TextRange& range, std::string_view old, std::string& out) {
          if ((prefix || range.begin != 0) && !old.starts_with(' ')) out += ' ';
          out += old;
        });
      }
      if (!step.regex.empty()) {
        Step split{Kind::kSplitRegex};
        split.regex = step.regex;
        GODWIT_TRY(split_pieces(split, pieces, scratch));
      }
      if (i + 1 < steps_.size()) {
        rewrite(pieces,
                [](size_t, const TextRange&, std::string_view old, std::string& out) { out += bytes_to_chars(old); });
        pieces.mapped = true;
      }
    }
  }
  if (pieces.mapped) {
    rewrite(pieces, [](size_t, const TextRange&, std::string_view old, std::string& out) {
      // A Metaspace after ByteLevel may bring in a character that is not in the alphabet; such text stays as it is.
      out += chars_to_bytes(old).value_or(std::string(old));
    });
    pieces.mapped = false;
  }
  return pieces;
}

}  // namespace godwit
