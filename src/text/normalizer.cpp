#include "text/normalizer.h"

#include <cstdlib>
#include <memory>

#include <nlohmann/json.hpp>
#include <utf8proc.h>

#include "base/json.h"
#include "base/result.h"
#include "text/char_class.h"
#include "text/utf8.h"

namespace godwit {
namespace {

using Kind = NormalizerStep::Kind;
using Json = nlohmann::json;
constexpr size_t kMaxSteps = 64;
constexpr size_t kMaxContentBytes = 1024;

// Replacements may not blow a text up without bound; real normalizers stay far below this.
size_t growth_limit(size_t text_bytes) {
  return 32 * text_bytes + 4096;
}

tl::unexpected<Error> grows_too_much() {
  return fail(ErrorCode::kExhausted, "the tokenizer's normalizer makes this text more than 32 times longer");
}

Status read_steps(const Json& value, std::string_view label, std::vector<NormalizerStep>& steps);

Status read_replace(const JsonObject& object, std::vector<NormalizerStep>& steps) {
  NormalizerStep step{Kind::kReplace, {}, {}, {}};
  GODWIT_ASSIGN(step.content, object.get<std::string>("content"));
  GODWIT_ASSIGN(const JsonObject pattern, object.object("pattern"));
  if (pattern.has("Regex")) {
    GODWIT_ASSIGN(const std::string text, pattern.get<std::string>("Regex"));
    GODWIT_ASSIGN(SplitRegex regex, SplitRegex::compile(text, object.label()));
    step.regex.push_back(std::move(regex));
  } else {
    GODWIT_ASSIGN(step.pattern, pattern.get<std::string>("String"));
    if (step.pattern.empty()) {
      return errorf(ErrorCode::kBadData, "{}: the Replace normalizer has an empty pattern", object.label());
    }
  }
  if (step.content.size() > kMaxContentBytes) {
    return errorf(ErrorCode::kBadData, "{}: the content of a Replace normalizer exceeds {} bytes", object.label(),
                  kMaxContentBytes);
  }
  steps.push_back(std::move(step));
  return {};
}

Status read_step(const JsonObject& object, std::vector<NormalizerStep>& steps) {
  GODWIT_ASSIGN(const std::string type, object.get<std::string>("type"));
  const auto add = [&](Kind kind) { steps.push_back({kind, {}, {}, {}}); };
  if (type == "Sequence") {
    const auto list = object.value().find("normalizers");
    if (list == object.value().end() || !list->is_array()) {
      return errorf(ErrorCode::kBadData, "{}: a Sequence normalizer has no list 'normalizers'", object.label());
    }
    for (const Json& item : *list) GODWIT_TRY(read_steps(item, object.label(), steps));
    return {};
  }
  if (type == "Prepend") {
    GODWIT_ASSIGN(std::string content, object.get<std::string>("prepend"));
    if (content.size() > kMaxContentBytes) {
      return errorf(ErrorCode::kBadData, "{}: the Prepend normalizer exceeds {} bytes", object.label(),
                    kMaxContentBytes);
    }
    steps.push_back({Kind::kPrepend, {}, std::move(content), {}});
    return {};
  }
  if (type == "Replace") return read_replace(object, steps);
  if (type == "Strip") {
    GODWIT_ASSIGN(const bool left, object.get_or<bool>("strip_left", true));
    GODWIT_ASSIGN(const bool right, object.get_or<bool>("strip_right", true));
    if (left) add(Kind::kStripLeft);
    if (right) add(Kind::kStripRight);
    return {};
  }
  if (type == "NFC") return add(Kind::kNfc), Status{};
  if (type == "NFD") return add(Kind::kNfd), Status{};
  if (type == "NFKC") return add(Kind::kNfkc), Status{};
  if (type == "NFKD") return add(Kind::kNfkd), Status{};
  if (type == "Lowercase") return add(Kind::kLowercase), Status{};
  if (type == "StripAccents") return add(Kind::kStripAccents), Status{};
  return errorf(
      ErrorCode::kUnsupported,
      "{}: the normalizer '{}' is not supported (supported: Sequence, Prepend, Replace, Strip, NFC, NFD, NFKC, "
      "NFKD, Lowercase, StripAccents)",
      object.label(), type);
}

Status read_steps(const Json& value, std::string_view label, std::vector<NormalizerStep>& steps) {
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(value, std::string(label)));
  GODWIT_TRY(read_step(object, steps));
  if (steps.size() > kMaxSteps) {
    return errorf(ErrorCode::kBadData, "{}: more than {} normalizer steps", label, kMaxSteps);
  }
  return {};
}

Result<std::string> unicode_form(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length < 0) return errorf(ErrorCode::kExhausted, "the text cannot be normalized: {}", utf8proc_errmsg(length));
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

Result<std::string> replace_all(std::string_view text, const NormalizerStep& step, size_t limit) {
  const std::string_view pattern = step.pattern;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t pos = 0;
  for (size_t hit; (hit = text.find(pattern, pos)) != text.npos; pos = hit + pattern.size()) {
    out.append(text, pos, hit - pos);
    out += step.content;
    if (out.size() > limit) return grows_too_much();
  }
  out.append(text, pos);
  return out;
}

Result<std::string> replace_matches(std::string_view text, const NormalizerStep& step, size_t limit,
                                    RegexScratch& scratch) {
  std::vector<TextRange> matches;
  GODWIT_TRY(step.regex.front().find_all(text, scratch, matches));
  std::string out;
  size_t pos = 0;
  for (const TextRange& match : matches) {
    out.append(text, pos, match.begin - pos);
    out += step.content;
    if (out.size() > limit) return grows_too_much();
    pos = match.end;
  }
  out.append(text, pos);
  return out;
}

template <class Keep>
std::string map_chars(std::string_view text, Keep&& emit) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    emit(c.code_point, out);
    pos += c.length;
  }
  return out;
}

void lowercase(char32_t c, std::string& out) {
  // The one character whose lower case is longer than one character, whatever its surroundings.
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void drop_accents(char32_t c, std::string& out) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return;
    default:
      utf8_append(out, c);
  }
}

std::string strip_left(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Char c = utf8_at(text, pos);
    if (!is_space_char(c.code_point)) break;
    pos += c.length;
  }
  return std::string(text.substr(pos));
}

std::string strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_space_char(utf8_at(text, start).code_point)) break;
    end = start;
  }
  return std::string(text.substr(0, end));
}

std::string squash_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

Result<std::string> apply_step(const NormalizerStep& step, std::string_view text, size_t limit, RegexScratch& scratch) {
  switch (step.kind) {
    case Kind::kPrepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case Kind::kReplace:
      if (!step.regex.empty()) return replace_matches(text, step, limit, scratch);
      return replace_all(text, step, limit);
    case Kind::kNfc:
      return unicode_form(text, UTF8PROC_COMPOSE);
    case Kind::kNfd:
      return unicode_form(text, UTF8PROC_DECOMPOSE);
    case Kind::kNfkc:
      return unicode_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Kind::kNfkd:
      return unicode_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    case Kind::kLowercase:
      return map_chars(text, lowercase);
    case Kind::kStripAccents:
      return map_chars(text, drop_accents);
    case Kind::kStripLeft:
      return strip_left(text);
    case Kind::kStripRight:
      return strip_right(text);
    case Kind::kSquashSpaces:
      return squash_spaces(text);
  }
  return std::string(text);
}

bool is_unicode_form(Kind kind) {
  return kind == Kind::kNfc || kind == Kind::kNfd || kind == Kind::kNfkc || kind == Kind::kNfkd;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const Json& value, std::string_view label) {
  std::vector<NormalizerStep> steps;
  if (!value.is_null()) GODWIT_TRY(read_steps(value, label, steps));
  return Normalizer(std::move(steps));
}

Result<std::string> Normalizer::apply(std::string_view text, RegexScratch& scratch, bool prepend) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    if (step.kind == Kind::kPrepend && !prepend) continue;
    // ASCII is its own normal form in all four of them.
    if (is_unicode_form(step.kind) && is_ascii(current)) continue;
    GODWIT_ASSIGN(current, apply_step(step, current, growth_limit(text.size()), scratch));
    if (current.size() > growth_limit(text.size())) return grows_too_much();
  }
  return current;
}

}  // namespace godwit
