// Cuts a normalized text into the pieces inside which a model merges.
//
// Each step cuts every piece of the step before. Byte-level text is kept as its plain bytes, not as the visible
// alphabet of byte_map.h, except while a step that comes after ByteLevel looks at it (Falcon has such steps).
// Immutable; safe to share between threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/split_regex.h"
#include <godwit/status.h>

namespace godwit {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum class Kind {
    kSplitRegex,   // at matches of `regex`
    kSplitString,  // at occurrences of `text`
    kDigits,       // at numeric characters
    kPunctuation,  // at punctuation characters
    kSpaces,       // at white space
    kWords,        // word characters, and runs of what is neither word nor space; white space goes
    kMetaspace,    // spaces become `text`, perhaps with one in front; with `split`, each starts a piece
    kBytes,        // from here on the pieces are bytes, perhaps with a space in front
  };
  enum class Prefix { kNever, kFirst, kAlways };

  Kind kind;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  std::vector<SplitRegex> regex{};
  std::string text{};
  Prefix prefix = Prefix::kNever;
  bool split = false;
};

// The regular expression that ByteLevel applies by itself, GPT-2's.
extern const std::string_view kGpt2Pattern;

// Pieces of one stretch of text: ranges of `text`.
struct TextPieces {
  std::string text;
  std::vector<TextRange> ranges;
  bool mapped = false;  // text is in the visible alphabet of bytes
};

class PreTokenizer {
 public:
  // The "pre_tokenizer" of a tokenizer.json; null means none.
  static Result<PreTokenizer> from_json(const nlohmann::json& value, std::string_view label);
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps = {}) : steps_(std::move(steps)) {}

  const std::vector<PreTokenizerStep>& steps() const { return steps_; }
  bool byte_level() const;  // some step is kBytes: the model works on bytes

  // `at_start`: the text begins the whole input. `prefix`: false where the text continues one that was cut apart.
  // In the result nothing is mapped. REQUIRES: text is valid UTF-8.
  Result<TextPieces> apply(std::string text, bool at_start, bool prefix, RegexScratch& scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace godwit
