// Reads the "pre_tokenizer" of a tokenizer.json.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/result.h"
#include "text/pre_tokenizer.h"

namespace godwit {
namespace {

using Json = nlohmann::json;
using Step = PreTokenizerStep;
using Kind = Step::Kind;
constexpr size_t kMaxSteps = 64;

Result<SplitBehavior> read_behavior(const JsonObject& object, std::string_view fallback) {
  GODWIT_ASSIGN(const std::string name, object.get_or<std::string>("behavior", std::string(fallback)));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return errorf(ErrorCode::kBadData, "{}: a pre-tokenizer has the unknown behavior '{}'", object.label(), name);
}

Result<Step> read_split(const JsonObject& object) {
  Step step{Kind::kSplitRegex};
  GODWIT_ASSIGN(step.behavior, read_behavior(object, "Isolated"));
  GODWIT_ASSIGN(step.invert, object.get_or<bool>("invert", false));
  GODWIT_ASSIGN(const JsonObject pattern, object.object("pattern"));
  if (pattern.has("Regex")) {
    GODWIT_ASSIGN(const std::string text, pattern.get<std::string>("Regex"));
    GODWIT_ASSIGN(SplitRegex regex, SplitRegex::compile(text, object.label()));
    step.regex.push_back(std::move(regex));
  } else {
    step.kind = Kind::kSplitString;
    GODWIT_ASSIGN(step.text, pattern.get<std::string>("String"));
  }
  return step;
}

Result<Step> read_byte_level(const JsonObject& object) {
  Step step{Kind::kBytes};
  GODWIT_ASSIGN(const bool prefix, object.get_or<bool>("add_prefix_space", true));
  GODWIT_ASSIGN(const bool use_regex, object.get_or<bool>("use_regex", true));
  if (prefix) step.prefix = Step::Prefix::kAlways;
  if (use_regex) {
    GODWIT_ASSIGN(SplitRegex regex, SplitRegex::compile(kGpt2Pattern, object.label()));
    step.regex.push_back(std::move(regex));
  }
  return step;
}

Result<Step> read_metaspace(const JsonObject& object) {
  Step step{Kind::kMetaspace};
  GODWIT_ASSIGN(step.text, object.get_or<std::string>("replacement", "▁"));
  if (step.text.empty() || step.text.size() > 4) {
    return errorf(ErrorCode::kBadData, "{}: the replacement of a Metaspace is not one character", object.label());
  }
  GODWIT_ASSIGN(step.split, object.get_or<bool>("split", true));
  GODWIT_ASSIGN(const bool add_prefix, object.get_or<bool>("add_prefix_space", true));
  GODWIT_ASSIGN(const std::string scheme,
                object.get_or<std::string>("prepend_scheme", add_prefix ? "always" : "never"));
  if (scheme == "always") {
    step.prefix = Step::Prefix::kAlways;
  } else if (scheme == "first") {
    step.prefix = Step::Prefix::kFirst;
  } else if (scheme != "never") {
    return errorf(ErrorCode::kBadData, "{}: a Metaspace has the unknown prepend_scheme '{}'", object.label(), scheme);
  }
  return step;
}

Status read_steps(const Json& value, std::string_view label, std::vector<Step>& steps) {
  GODWIT_ASSIGN(const JsonObject object, JsonObject::of(value, std::string(label)));
  GODWIT_ASSIGN(const std::string type, object.get<std::string>("type"));
  const auto push = [&](Result<Step> step) -> Status {
    if (!step) return tl::unexpected(std::move(step).error());
    steps.push_back(std::move(*step));
    if (steps.size() <= kMaxSteps) return {};
    return errorf(ErrorCode::kBadData, "{}: more than {} pre-tokenizer steps", label, kMaxSteps);
  };
  if (type == "Sequence") {
    const auto list = value.find("pretokenizers");
    if (list == value.end() || !list->is_array()) {
      return errorf(ErrorCode::kBadData, "{}: a Sequence pre-tokenizer has no list 'pretokenizers'", label);
    }
    for (const Json& item : *list) GODWIT_TRY(read_steps(item, label, steps));
    return {};
  }
  if (type == "Split") return push(read_split(object));
  if (type == "ByteLevel") return push(read_byte_level(object));
  if (type == "Metaspace") return push(read_metaspace(object));
  if (type == "Whitespace") return push(Step{Kind::kWords, SplitBehavior::kRemoved, true});
  if (type == "WhitespaceSplit") return push(Step{Kind::kSpaces, SplitBehavior::kRemoved});
  if (type == "Digits") {
    GODWIT_ASSIGN(const bool each, object.get_or<bool>("individual_digits", false));
    return push(Step{Kind::kDigits, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  }
  if (type == "Punctuation") {
    GODWIT_ASSIGN(const SplitBehavior behavior, read_behavior(object, "Isolated"));
    return push(Step{Kind::kPunctuation, behavior});
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: the pre-tokenizer '{}' is not supported (supported: Sequence, Split, ByteLevel, Metaspace, "
                "Whitespace, WhitespaceSplit, Digits, Punctuation)",
                label, type);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json& value, std::string_view label) {
  std::vector<Step> steps;
  if (!value.is_null()) GODWIT_TRY(read_steps(value, label, steps));
  const auto is_bytes = [](const Step& step) { return step.kind == Kind::kBytes; };
  if (std::count_if(steps.begin(), steps.end(), is_bytes) > 1) {
    return errorf(ErrorCode::kUnsupported, "{}: more than one ByteLevel pre-tokenizer is not supported", label);
  }
  return PreTokenizer(std::move(steps));
}

}  // namespace godwit
