#include "text/pre_names.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/result.h"
#include "text/utf8.h"

namespace godwit {
namespace {

using Step = PreTokenizerStep;
using Kind = Step::Kind;

// What the parts of a recipe mean, besides regular expressions.
constexpr std::string_view kDigit = "<each digit>";
constexpr std::string_view kDigitRuns = "<runs of digits>";
constexpr std::string_view kPunctuationRuns = "<runs of punctuation>";
constexpr std::string_view kByteStep = "<bytes>";

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
constexpr std::string_view kDeepseekWords = "<cased words>";
constexpr std::string_view kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kDeepseekCjk = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kDeepseek3Cjk = "[一-龥぀-ゟ゠-ヿ]+";
// The line breaks are characters of the pattern, not escapes, as in the model's own file.
constexpr std::string_view kDeepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

struct Recipe {
  std::vector<std::string_view> names;  // the first is what we write
  std::vector<std::string_view> parts;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

std::vector<Recipe> recipes() {
  return {
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"},
       {kLlama3, kByteStep},
       false,
       true,
       true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3, kByteStep}},
      {{"qwen2"}, {kQwen2, kByteStep}, true},
      {{"qwen35"}, {kQwen35, kByteStep}, true},
      {{"stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan", "solar-open", "grok-2"}, {kQwen2, kByteStep}},
      {{"gpt-2", "mpt", "olmo", "phi-2", "jais", "gigachat", "roberta-bpe", "jina-es", "jina-de", "jina-v2-es",
        "jina-v2-de", "jina-v2-code", "jina-v1-en", "trillion", "granite-docling"},
       {kGpt2, kByteStep}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"}, {kDigit, kGpt2, kByteStep}},
      {{"deepseek-llm"}, {"[\r\n]", kDeepseekWords, kDeepseekPunctuation, "\\s+$", kDeepseekCjk, "\\p{N}+", kByteStep}},
      {{"deepseek-coder"}, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekCjk, kDigit, kByteStep}},
      {{"deepseek-v3", "hunyuan-dense"}, {"\\p{N}{1,3}", kDeepseek3Cjk, kDeepseek3, kByteStep}},
      {{"falcon"}, {kPunctuationRuns, kGpt2, kByteStep, kDigitRuns, "[0-9][0-9][0-9]"}},
      {{"tekken"}, {kTekken, kByteStep}, false, true},
      {{"gpt-4o", "llama4", "minimax-m2"}, {kGpt4o, kByteStep}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom, kByteStep}},
      {{"viking"}, {kBloom, kDigit, kByteStep}},
      {{"default"}, {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2, "\\p{N}+", "[0-9][0-9][0-9]", kByteStep}},
  };
}

// DeepSeek LLM's list of cased letters, which is neither complete nor any Unicode property: first and last of each
// range, in the order (and with the neighbors kept apart) of the model's own file.
std::string cased_words() {
  constexpr char32_t kRanges[][2] = {
      {'A', 'Z'},         {'a', 'z'},         {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
      {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
      {0x376, 0x376},     {0x377, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},
      {0x388, 0x38A},     {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
      {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
      {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
      {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},
      {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
      {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
      {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
      {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},
      {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
      {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},
      {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
      {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
      {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
      {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
      {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};
  std::string out = "\\s?[";
  for (const auto& [first, last] : kRanges) {
    utf8_append(out, first);
    if (last == first) continue;
    out += '-';
    utf8_append(out, last);
  }
  return out + "]+";
}

// The same spelling for steps that cut alike, so that pipelines can be compared.
std::string spell(const Step& step) {
  std::string out = fmt::format("{}/{}/{}/{}/{}/{}", static_cast<int>(step.kind), static_cast<int>(step.behavior),
                                step.invert, step.text, static_cast<int>(step.prefix), step.split);
  if (!step.regex.empty()) out += step.regex.front().pattern();
  return out;
}

// ByteLevel's own regular expression is a step before it; "each digit" is the same as cutting at \p{N}; and escaped and
// plain line breaks are the same.
std::vector<std::string> signature(const std::vector<Step>& steps) {
  std::vector<std::string> out;
  const auto add = [&](Step step) {
    if (step.kind == Kind::kDigits && step.behavior == SplitBehavior::kIsolated) {
      out.emplace_back("each digit");
      return;
    }
    std::string text = spell(step);
    if (step.kind == Kind::kSplitRegex && step.behavior == SplitBehavior::kIsolated &&
        step.regex.front().pattern() == "\\p{N}") {
      text = "each digit";
    }
    for (const auto& [plain, escaped] : {std::pair{"\r", "\\r"}, std::pair{"\n", "\\n"}}) {
      for (size_t at; (at = text.find(plain)) != text.npos;) text.replace(at, 1, escaped);
    }
    out.push_back(std::move(text));
  };
  for (const Step& step : steps) {
    if (step.kind == Kind::kBytes && !step.regex.empty() && step.prefix == Step::Prefix::kNever) {
      Step split{Kind::kSplitRegex};
      split.regex = step.regex;
      add(split);
      Step bytes = step;
      bytes.regex.clear();
      add(bytes);
    } else {
      add(step);
    }
  }
  return out;
}

Result<PreTraits> build(const Recipe& recipe, std::string_view label) {
  PreTraits traits{{}, recipe.nfc, recipe.ignore_merges, recipe.add_bos};
  for (const std::string_view part : recipe.parts) {
    if (part == kDigit) {
      traits.steps.push_back({Kind::kDigits, SplitBehavior::kIsolated});
    } else if (part == kDigitRuns) {
      traits.steps.push_back({Kind::kDigits, SplitBehavior::kContiguous});
    } else if (part == kPunctuationRuns) {
      traits.steps.push_back({Kind::kPunctuation, SplitBehavior::kContiguous});
    } else if (part == kByteStep) {
      traits.steps.push_back({Kind::kBytes});
    } else {
      const std::string pattern = part == kDeepseekWords ? cased_words() : std::string(part);
      GODWIT_ASSIGN(SplitRegex regex, SplitRegex::compile(pattern, label));
      Step step{Kind::kSplitRegex};
      step.regex.push_back(std::move(regex));
      traits.steps.push_back(std::move(step));
    }
  }
  return traits;
}

}  // namespace

Result<PreTraits> find_pre(std::string_view name, std::string_view label) {
  std::vector<std::string_view> known;
  for (const Recipe& recipe : recipes()) {
    if (std::find(recipe.names.begin(), recipe.names.end(), name) != recipe.names.end()) return build(recipe, label);
    known.insert(known.end(), recipe.names.begin(), recipe.names.end());
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: the split pattern '{:.80}' (tokenizer.ggml.pre) is not known; known are: {}", label, name,
                fmt::join(known, ", "));
}

Result<std::string> name_of_pre(const PreTraits& traits, std::string_view label) {
  const auto wanted = signature(traits.steps);
  for (const Recipe& recipe : recipes()) {
    if (recipe.nfc != traits.nfc || recipe.ignore_merges != traits.ignore_merges) continue;
    GODWIT_ASSIGN(const PreTraits candidate, build(recipe, label));
    if (signature(candidate.steps) == wanted) return std::string(recipe.names.front());
  }
  return errorf(ErrorCode::kUnsupported,
                "{}: this tokenizer's way to cut text into words has no name in GGUF, so it cannot be written there",
                label);
}

}  // namespace godwit
