#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_regex.h"

#include <algorithm>

#include <pcre2.h>

#include "base/check.h"
#include "base/result.h"
#include "text/regex_dialect.h"
#include "text/utf8.h"

namespace godwit {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// Backtracking steps of one match. `\s*[\r\n]+` needs one for every blank of a run, so long texts need more.
constexpr uint64_t kMinMatchLimit = 1'000'000;
constexpr uint64_t kMatchLimitPerByte = 8;
constexpr size_t kJitStackBytes = 4 << 20;
// How many start positions × bytes one call may try before the clock is read again.
constexpr size_t kWorkPerCall = 100'000'000;
constexpr unsigned kMatchesPerClock = 1024;

tl::unexpected<Error> too_slow(std::string_view pattern) {
  return errorf(ErrorCode::kExhausted,
                "the tokenizer's split pattern '{}' takes too long on this text; the pattern or the text is hostile",
                pattern);
}

}  // namespace

RegexScratch::RegexScratch(size_t text_bytes)
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)),
      // Real patterns run at more than 20 MB/s; a thousandth of that is not a matter of a slow machine.
      deadline_(std::chrono::steady_clock::now() + std::chrono::seconds(5) +
                std::chrono::microseconds(text_bytes * 50)) {
  GODWIT_CHECK(data_ && context_ && stack_, "PCRE2 has no memory");
  const auto limit = static_cast<uint32_t>(
      std::min<uint64_t>(INT32_MAX, std::max<uint64_t>(kMinMatchLimit, kMatchLimitPerByte * text_bytes)));
  pcre2_set_match_limit(context_, limit);
  pcre2_set_depth_limit(context_, limit);
  pcre2_set_heap_limit(context_, 64 << 10);
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

Result<SplitRegex> SplitRegex::compile(std::string_view pattern, std::string_view label) {
  if (pattern.size() > kMaxPatternBytes) {
    return errorf(ErrorCode::kBadData, "{}: a split pattern of {} bytes exceeds the limit of {}", label, pattern.size(),
                  kMaxPatternBytes);
  }
  GODWIT_ASSIGN(const std::string translated, onig_to_pcre(pattern, label));
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  GODWIT_CHECK(context, "PCRE2 has no memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 50);
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                                   &offset, context.get());
  if (!code) {
    char message[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return errorf(ErrorCode::kBadData, "{}: the split pattern '{}' is not a valid regular expression: {}", label,
                  pattern, message);
  }
  SplitRegex out;
  out.pattern_ = pattern;
  out.code_ = std::shared_ptr<pcre2_code>(code, &pcre2_code_free);
  // Without JIT (a platform that lacks it) pcre2_match interprets: same matches, slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return out;
}

Status SplitRegex::find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>& out) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(scratch.data_);
  size_t pos = 0;
  size_t last_end = std::string_view::npos;
  const auto advance = [&](size_t at) { return at < text.size() ? at + utf8_at(text, at).length : at + 1; };
  while (pos <= text.size()) {
    if (++scratch.steps_ % kMatchesPerClock == 0 && std::chrono::steady_clock::now() > scratch.deadline_) {
      return too_slow(pattern_);
    }
    const size_t starts = std::max<size_t>(4, kWorkPerCall / (text.size() - pos + 1));
    size_t window_end = pos + starts;
    const bool whole = window_end >= text.size();
    if (!whole) {
      while ((static_cast<uint8_t>(text[window_end]) & 0xC0) == 0x80) --window_end;
    }
    pcre2_set_offset_limit(scratch.context_, whole ? PCRE2_UNSET : window_end);
    const int rc =
        pcre2_match(code_.get(), subject, text.size(), pos, PCRE2_NO_UTF_CHECK, scratch.data_, scratch.context_);
    if (rc == PCRE2_ERROR_NOMATCH) {
      if (whole) break;
      if (std::chrono::steady_clock::now() > scratch.deadline_) return too_slow(pattern_);
      pos = advance(window_end);
      continue;
    }
    if (rc < 0) return too_slow(pattern_);
    const TextRange match{ovector[0], ovector[1]};
    if (match.end < match.begin || match.begin < pos) {
      return errorf(ErrorCode::kUnsupported, "the tokenizer's split pattern '{}' matches backwards", pattern_);
    }
    const bool empty = match.begin == match.end;
    if (!empty || match.begin != last_end) out.push_back(match);
    last_end = match.end;
    pos = empty ? advance(match.end) : match.end;
  }
  return {};
}

}  // namespace godwit
