#include "text/added_tokens.h"

#include "text/char_class.h"
#include "text/utf8.h"

namespace godwit {
namespace {

size_t char_start_before(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_char(utf8_at(text, char_start_before(text, begin)).code_point)) return false;
  return end >= text.size() || !is_word_char(utf8_at(text, end).code_point);
}

size_t skip_space_left(std::string_view text, size_t pos, size_t limit) {
  while (pos > limit) {
    const size_t start = char_start_before(text, pos);
    if (start < limit || !is_space_char(utf8_at(text, start).code_point)) break;
    pos = start;
  }
  return pos;
}

size_t skip_space_right(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Utf8Char c = utf8_at(text, pos);
    if (!is_space_char(c.code_point)) break;
    pos += c.length;
  }
  return pos;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, std::vector<std::string> patterns)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < patterns.size(); ++i) entries.emplace_back(patterns[i], static_cast<int32_t>(i));
  trie_ = ByteTrie(std::move(entries));
}

std::vector<TextSection> AddedTokenMatcher::split(std::string_view text, bool parse_special) const {
  std::vector<TextSection> out;
  size_t done = 0;  // text before this is in `out`
  for (size_t pos = trie_.empty() ? text.size() : 0; pos < text.size();) {
    if (!trie_.may_start_with(static_cast<uint8_t>(text[pos]))) {
      ++pos;
      continue;
    }
    size_t length = 0;
    int32_t found = -1;
    trie_.each_prefix(text, pos, [&](size_t prefix, int32_t index) {
      length = prefix;
      found = index;
    });
    if (found < 0) {
      ++pos;
      continue;
    }
    // A match that does not count still hides what begins inside it.
    size_t begin = pos;
    size_t end = pos + length;
    pos = end;
    const AddedToken& token = tokens_[found];
    if (begin < done || (token.special && !parse_special)) continue;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = skip_space_left(text, begin, done);
    if (token.rstrip) end = skip_space_right(text, end);
    if (begin > done) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

}  // namespace godwit
