// What happens to a text before it is cut into words: Unicode normal forms, replacements, a prefix.
// Immutable; safe to share between threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/split_regex.h"
#include <godwit/status.h>

namespace godwit {

struct NormalizerStep {
  enum class Kind {
    kPrepend,  // content in front of a non-empty text
    kReplace,  // every `pattern` (or match of `regex`) by `content`
    kNfc,      // Unicode normal forms
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStripLeft,  // white space at the ends
    kStripRight,
    kStripAccents,  // combining marks
    kSquashSpaces,  // runs of spaces to one, none at the ends (SentencePiece's remove_extra_whitespaces)
  };
  Kind kind;
  std::string pattern;
  std::string content;
  std::vector<SplitRegex> regex;  // one when a kReplace looks for a regular expression
};

class Normalizer {
 public:
  // The "normalizer" of a tokenizer.json; null means none.
  static Result<Normalizer> from_json(const nlohmann::json& value, std::string_view label);
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  const std::vector<NormalizerStep>& steps() const { return steps_; }

  // `prepend` is false where the text continues one that was cut apart, so that no prefix belongs in front of it.
  // REQUIRES: text is valid UTF-8.
  Result<std::string> apply(std::string_view text, RegexScratch& scratch, bool prepend = true) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace godwit
