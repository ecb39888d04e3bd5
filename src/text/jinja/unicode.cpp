#include "text/jinja/unicode.h"

#include <algorithm>
#include <iterator>

namespace godwit::jinja {
namespace {

struct CaseRun {
  uint32_t first, last, step;
  int32_t delta;
};

struct CaseSpecial {
  uint32_t code;
  const char* upper;
  const char* title;
};

#include "text/jinja/unicode_case.inc"

template <size_t N>
uint32_t map_case(const CaseRun (&runs)[N], uint32_t code) {
  auto it = std::upper_bound(std::begin(runs), std::end(runs), code,
                             [](uint32_t value, const CaseRun& run) { return value < run.first; });
  if (it == std::begin(runs)) return code;
  --it;
  return code <= it->last && (code - it->first) % it->step == 0 ? code + it->delta : code;
}

uint32_t upper_of(uint32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return map_case(kUpperRuns, code);
}

uint32_t lower_of(uint32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return map_case(kLowerRuns, code);
}

const CaseSpecial* special_of(uint32_t code) {
  auto it = std::lower_bound(std::begin(kSpecials), std::end(kSpecials), code,
                             [](const CaseSpecial& s, uint32_t value) { return s.code < value; });
  return it != std::end(kSpecials) && it->code == code ? it : nullptr;
}

constexpr uint32_t kCapitalSigma = 0x3a3, kFinalSigma = 0x3c2, kCapitalDottedI = 0x130;

void append_upper(std::string& out, uint32_t code) {
  if (const CaseSpecial* special = special_of(code)) {
    out += special->upper;
  } else {
    append_utf8(out, upper_of(code));
  }
}

void append_title(std::string& out, uint32_t code) {
  if (const CaseSpecial* special = special_of(code)) {
    out += special->title;
  } else {
    append_utf8(out, upper_of(code));
  }
}

// A capital sigma at the end of a word has its own small form.
void append_lower(std::string& out, uint32_t code, bool after_letter, std::string_view rest) {
  if (code == kCapitalSigma && after_letter && (rest.empty() || !is_cased(decode_at(rest, 0).code))) {
    append_utf8(out, kFinalSigma);
  } else if (code == kCapitalDottedI) {
    out += "i\xcc\x87";
  } else {
    append_utf8(out, lower_of(code));
  }
}

}  // namespace

Character decode_at(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  Character bad{kBadByte + lead, 1};
  size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - pos < length) return bad;
  uint32_t code = lead & (0xff >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((byte(i) & 0xc0) != 0x80) return bad;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return bad;
  return {code, length};
}

void append_utf8(std::string& out, uint32_t code) {
  auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code >= kBadByte) return put(code - kBadByte);
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); count++) pos += decode_at(text, pos).bytes;
  return count;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t pos = 0; pos < text.size(); pos += out.back().size()) {
    out.push_back(text.substr(pos, decode_at(text, pos).bytes));
  }
  return out;
}

bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

// Controls, format characters, separators, private use and noncharacters are not printable. Unassigned code points,
// which change with every Unicode version, are taken as printable.
bool is_printable(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kHidden[] = {
      {0, 0x1f},          {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},        {0x61c, 0x61c},
      {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},        {0x1680, 0x1680},
      {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x2064},      {0x2066, 0x206f},
      {0x3000, 0x3000},   {0xd800, 0xf8ff},   {0xfdd0, 0xfdef},   {0xfeff, 0xfeff},      {0xfff9, 0xfffb},
      {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},    {0x1bca0, 0x1bca3},
      {0x1d173, 0x1d17a}, {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffffff},
  };
  for (const Range& range : kHidden) {
    if (code <= range.last) return code < range.first;
  }
  return true;
}

bool is_upper(uint32_t code) {
  return lower_of(code) != code;
}
bool is_lower(uint32_t code) {
  return upper_of(code) != code || special_of(code) != nullptr;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    pos += c.bytes;
    append_upper(out, c.code);
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_letter = false;
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    pos += c.bytes;
    append_lower(out, c.code, after_letter, text.substr(pos));
    after_letter = is_cased(c.code);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_letter = false;
  for (size_t pos = 0; pos < text.size();) {
    Character c = decode_at(text, pos);
    pos += c.bytes;
    if (after_letter) {
      append_lower(out, c.code, true, text.substr(pos));
    } else {
      append_title(out, c.code);
    }
    after_letter = is_cased(c.code);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  if (text.empty()) return {};
  Character first = decode_at(text, 0);
  std::string out;
  append_title(out, first.code);
  return out + to_lower(text.substr(first.bytes));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    Character c = decode_at(text, 0);
    if (!is_space(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80) start--;
    Character c = decode_at(text, start);
    if (start + c.bytes != text.size() || !is_space(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

}  // namespace godwit::jinja
