// The regular expressions that cut a text into words before a tokenizer merges, run by PCRE2.
//
// tokenizer.json files are written for Oniguruma; compile() translates where the two dialects differ (what \s, \w and
// script names cover) and refuses what PCRE2 cannot express. Files come from strangers, so matching is bounded: a
// pattern that backtracks without end, or needs more than time linear in the text, ends in an error.
//
// A SplitRegex is immutable and safe to share between threads; the scratch belongs to one encode() call.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <godwit/status.h>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace godwit {

struct TextRange {
  size_t begin;
  size_t end;
};

// Match state that is expensive to make, and the moment at which matching gives up.
class RegexScratch {
 public:
  explicit RegexScratch(size_t text_bytes);
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class SplitRegex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
  std::chrono::steady_clock::time_point deadline_;
  unsigned steps_ = 0;  // matches since the clock was last read
};

class SplitRegex {
 public:
  // `pattern` is in Oniguruma's dialect. Errors carry `label`.
  static Result<SplitRegex> compile(std::string_view pattern, std::string_view label);

  // Appends the matches in `text`, leftmost first and not overlapping. REQUIRES: text is valid UTF-8.
  Status find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>& out) const;

  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;  // as the file spells it
  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace godwit
