#include "text/jinja/strings.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace godwit::jinja {

std::string_view strip(std::string_view text, const std::optional<std::string>& chars, Side side) {
  if (!chars) {
    if (side != Side::kRight) text = strip_left(text);
    return side == Side::kLeft ? text : strip_right(text);
  }
  std::vector<std::string_view> set = split_characters(*chars);
  auto listed = [&](std::string_view c) { return std::find(set.begin(), set.end(), c) != set.end(); };
  while (side != Side::kRight && !text.empty()) {
    size_t bytes = decode_at(text, 0).bytes;
    if (!listed(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (side != Side::kLeft && !text.empty()) {
    auto ends = std::find_if(set.begin(), set.end(), [&](std::string_view c) { return text.ends_with(c); });
    if (ends == set.end()) break;
    text.remove_suffix(ends->size());
  }
  return text;
}

std::string replace(Heap& heap, std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  std::string out;
  auto check = [&] {
    if (out.size() > heap.limits().max_memory_bytes) heap.work(out.size());
  };
  heap.work(text.size());
  int64_t done = 0;
  auto more = [&] { return most < 0 || done < most; };
  size_t pos = 0;
  if (from.empty()) {
    while (more()) {
      out += to;
      done++;
      check();
      if (pos >= text.size()) break;
      size_t bytes = decode_at(text, pos).bytes;
      out += text.substr(pos, bytes);
      pos += bytes;
    }
    return out += text.substr(pos);
  }
  while (more()) {
    size_t found = text.find(from, pos);
    if (found == std::string_view::npos) break;
    out += text.substr(pos, found - pos);
    out += to;
    pos = found + from.size();
    done++;
    check();
  }
  return out += text.substr(pos);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  auto is_break = [](uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    size_t end = pos;
    pos += c.bytes;
    if (!is_break(c.code)) continue;
    if (c.code == '\r' && pos < text.size() && text[pos] == '\n') pos++;
    lines.push_back(text.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::vector<std::string_view> split_blanks(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  auto full = [&] { return most >= 0 && static_cast<int64_t>(parts.size()) >= most; };
  if (!from_right) {
    for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
      if (full()) {  // the rest keeps its blanks at the far end
        parts.push_back(text);
        break;
      }
      size_t end = 0;
      while (end < text.size() && !is_space(decode_at(text, end).code)) end += decode_at(text, end).bytes;
      parts.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
    return parts;
  }
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (full()) {
      parts.push_back(text);
      break;
    }
    std::string_view before = text;
    while (!before.empty() && strip_right(before).size() == before.size()) before.remove_suffix(1);
    // `before` may now end inside a character: a blank ends where the word's bytes begin.
    parts.push_back(text.substr(before.size()));
    text = before;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_on(std::string_view text, std::string_view separator, int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  auto more = [&] { return most < 0 || static_cast<int64_t>(parts.size()) < most; };
  while (more()) {
    size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    std::string_view left = text.substr(0, found), right = text.substr(found + separator.size());
    parts.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace godwit::jinja
