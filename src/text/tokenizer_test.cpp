// Ids and decoded text against the `tokenizers` library, on every kind of tokenizer and thousands of hard strings.
#include "text/tokenizer.h"

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace godwit {
namespace {

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(GODWIT_TEST_DATA) + "/tokenizers/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::vector<std::string> read_lines(const std::string& name) {
  std::istringstream in(read_file(name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string hash(std::string_view bytes) {
  uint32_t value = 0x811C9DC5;
  for (const char c : bytes) value = (value ^ static_cast<uint8_t>(c)) * 0x01000193;
  return fmt::format("{:08x}", value);
}

std::string show(std::span<const TokenId> ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

// The golden form of a list of ids: as it is, or hashed when `expected` is.
std::string golden_form(std::span<const TokenId> ids, const std::string& expected) {
  if (!expected.starts_with('#')) return show(ids);
  return fmt::format("#{}", hash({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()}));
}

struct Golden {
  std::vector<std::string> strings;
  std::vector<std::string> plain, parsed;  // per string: ids, "#hash", "=" or "-"
  std::map<size_t, std::string> decoded;   // hash of the decoded text where it is not the string itself

  explicit Golden(const std::string& kind) {
    for (const std::string& line : read_lines("strings.txt")) strings.push_back(nlohmann::json::parse(line));
    for (const std::string& line : read_lines(kind + ".ids")) {
      const size_t tab = line.find('\t');
      plain.push_back(line.substr(0, tab));
      parsed.push_back(line.substr(tab + 1));
    }
    for (const std::string& line : read_lines(kind + ".txt")) {
      const size_t tab = line.find('\t');
      decoded[std::stoul(line.substr(0, tab))] = line.substr(tab + 1);
    }
  }
};

Tokenizer load(const std::string& kind) {
  auto result = Tokenizer::from_json(read_file(kind + ".json"), "", kind + ".json");
  if (!result) throw std::runtime_error(result.error().message);
  return *result;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text, bool add_special, bool parse_special) {
  auto ids = tokenizer.encode(text, {.add_bos = add_special, .add_eos = add_special, .parse_special = parse_special});
  if (!ids) throw std::runtime_error(ids.error().message);
  return *ids;
}

void expect_golden(const Tokenizer& tokenizer, const Golden& golden) {
  ASSERT_EQ(golden.strings.size(), golden.plain.size());
  ASSERT_GT(golden.strings.size(), 2500u);
  int failures = 0;
  for (size_t i = 0; i < golden.strings.size() && failures < 10; ++i) {
    const std::string& text = golden.strings[i];
    const auto plain = encode(tokenizer, text, false, false);
    if (golden.plain[i] != "-" && golden_form(plain, golden.plain[i]) != golden.plain[i]) {
      ADD_FAILURE() << "string " << i << " " << nlohmann::json(text) << ": got " << show(plain) << ", not "
                    << golden.plain[i];
      ++failures;
    }
    if (golden.parsed[i] == "-") continue;
    if (golden.parsed[i] == "=") {
      EXPECT_EQ(encode(tokenizer, text, false, true), plain) << "string " << i;
    } else {
      const auto parsed = encode(tokenizer, text, true, true);
      if (golden_form(parsed, golden.parsed[i]) != golden.parsed[i]) {
        ADD_FAILURE() << "string " << i << " " << nlohmann::json(text) << ", special tokens parsed: got "
                      << show(parsed) << ", not " << golden.parsed[i];
        ++failures;
      }
    }
    if (golden.plain[i] == "-") continue;
    const std::string back = tokenizer.decode(plain);
    const auto changed = golden.decoded.find(i);
    const std::string expected = changed == golden.decoded.end() ? hash(text) : changed->second;
    if (hash(back) != expected) {
      ADD_FAILURE() << "string " << i << " " << nlohmann::json(text) << " decodes to '" << back << "'";
      ++failures;
    }
  }
}

class TokenizerKind : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerKind, EqualsTheLibrary) {
  expect_golden(load(GetParam()), Golden(GetParam()));
}

TEST_P(TokenizerKind, StreamEqualsDecodeAtWholeCharacters) {
  const Tokenizer tokenizer = load(GetParam());
  for (const std::string& text : Golden(GetParam()).strings) {
    const auto ids = encode(tokenizer, text, true, true);
    for (const bool keep_special : {false, true}) {
      StreamDecoder stream(tokenizer, keep_special);
      std::string all;
      for (const TokenId id : ids) {
        const std::string part = stream.push(id);
        ASSERT_EQ(utf8_valid_end(part, 0), part.size()) << text;
        all += part;
      }
      all += stream.flush();
      ASSERT_EQ(all, tokenizer.decode(ids, keep_special)) << text;
    }
  }
}

TEST_P(TokenizerKind, StreamOfRandomIdsIsValidText) {
  const Tokenizer tokenizer = load(GetParam());
  std::mt19937 rng(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<TokenId> ids(20);
    for (TokenId& id : ids) id = static_cast<TokenId>(rng() % (tokenizer.vocab_size() + 3)) - 1;
    StreamDecoder stream(tokenizer, true);
    std::string all;
    for (const TokenId id : ids) {
      const std::string part = stream.push(id);
      ASSERT_EQ(utf8_valid_end(part, 0), part.size());
      all += part;
    }
    all += stream.flush();
    ASSERT_EQ(all, utf8_lossy(tokenizer.decode(ids, true)));
  }
}

TEST_P(TokenizerKind, PlainTextNeverBecomesASpecialToken) {
  const Tokenizer tokenizer = load(GetParam());
  for (const std::string& text : Golden(GetParam()).strings) {
    for (const TokenId id : encode(tokenizer, text, false, false)) {
      ASSERT_TRUE(!tokenizer.is_special(id) || id == tokenizer.unk()) << text;
    }
  }
}

constexpr const char* kKinds[] = {
    "gpt2",   "roberta", "llama3", "qwen2", "deepseek3", "deepseek_coder", "tekken",        "gpt4o",       "falcon",
    "llama2", "mistral", "phi3",   "gemma", "starcoder", "spm_trained",    "unigram_bytes", "unigram_nfkc"};
INSTANTIATE_TEST_SUITE_P(All, TokenizerKind, testing::ValuesIn(kKinds), [](const auto& param) { return param.param; });

class GgufKind : public testing::TestWithParam<std::pair<const char*, const char*>> {};

// Through GGUF metadata and back, nothing changes.
TEST_P(GgufKind, EqualsTheLibraryThroughGguf) {
  const auto [kind, pre] = GetParam();
  const Tokenizer original = load(kind);
  const auto vocab = original.to_gguf_vocab();
  ASSERT_TRUE(vocab) << vocab.error().message;
  EXPECT_EQ(vocab->pre, pre);
  const auto again = Tokenizer::from_gguf(*vocab, kind);
  ASSERT_TRUE(again) << again.error().message;
  expect_golden(*again, Golden(kind));
  EXPECT_EQ(again->bos(), original.bos());
  EXPECT_EQ(again->eos(), original.eos());
  EXPECT_EQ(again->unk(), original.unk());
  EXPECT_EQ(again->vocab_size(), original.vocab_size());
  EXPECT_EQ(again->adds_bos(), original.adds_bos());
}

using Pair = std::pair<const char*, const char*>;
INSTANTIATE_TEST_SUITE_P(All, GgufKind,
                         testing::Values(Pair{"gpt2", "gpt-2"}, Pair{"roberta", "gpt-2"}, Pair{"llama3", "llama-bpe"},
                                         Pair{"qwen2", "qwen2"}, Pair{"deepseek3", "deepseek-v3"},
                                         Pair{"deepseek_coder", "deepseek-coder"}, Pair{"tekken", "tekken"},
                                         Pair{"gpt4o", "gpt-4o"}, Pair{"starcoder", "starcoder"},
                                         Pair{"falcon", "falcon"}, Pair{"llama2", "default"},
                                         Pair{"mistral", "default"}, Pair{"phi3", "default"}, Pair{"gemma", "default"},
                                         Pair{"spm_trained", "default"}, Pair{"unigram_bytes", "default"}),
                         [](const auto& param) { return param.param.first; });

TEST(Tokenizer, TextThatContinuesHasNoPrefix) {
  for (const char* kind : {"llama2", "mistral", "phi3", "spm_trained", "unigram_bytes", "roberta"}) {
    const Tokenizer tokenizer = load(kind);
    auto spelled = [&](EncodeOptions options) {
      std::string text;
      const auto ids = tokenizer.encode("the the", options).value();
      for (TokenId id : ids) text += tokenizer.piece(id);
      return text;
    };
    EXPECT_EQ(spelled({.add_bos = false, .add_eos = false}), " the the") << kind;
    EXPECT_EQ(spelled({.add_bos = false, .add_eos = false, .continues = true}), "the the") << kind;
  }
}

TEST(TokenizerGguf, WritesMergesOnlyWhereScoresDoNotSuffice) {
  EXPECT_TRUE(load("llama2").to_gguf_vocab()->merges.empty());
  EXPECT_FALSE(load("spm_trained").to_gguf_vocab()->merges.empty());
}

TEST(TokenizerGguf, SaysWhatItCannotExpress) {
  const auto vocab = load("unigram_nfkc").to_gguf_vocab();
  ASSERT_FALSE(vocab);
  EXPECT_EQ(vocab.error().code, ErrorCode::kUnsupported);
}

class LosslessKind : public testing::TestWithParam<const char*> {};

TEST_P(LosslessKind, RandomBytesComeBack) {
  const Tokenizer tokenizer = load(GetParam());
  std::mt19937 rng(5);
  const std::string_view parts[] = {" ",
                                    "the",
                                    "é",
                                    "\xE2\x96",
                                    "\xF0\x9F\x98\x80",
                                    "\xFF",
                                    "\x80",
                                    "\xC3",
                                    "a",
                                    "\n",
                                    "\xED\xA0\x80",
                                    "\xF0\x9F",
                                    std::string_view("\0", 1),
                                    "42",
                                    "<s>",
                                    "\xC0\x80"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const int length = static_cast<int>(rng() % 40);
    for (int i = 0; i < length; ++i) {
      if (round % 2) {
        text += static_cast<char>(rng());
      } else {
        text += parts[rng() % std::size(parts)];
      }
    }
    const auto ids = encode(tokenizer, text, true, false);
    ASSERT_EQ(tokenizer.decode(ids), text) << nlohmann::json(utf8_lossy(text));
  }
}

INSTANTIATE_TEST_SUITE_P(All, LosslessKind,
                         testing::Values("gpt2", "llama3", "deepseek3", "deepseek_coder", "tekken", "gpt4o", "falcon",
                                         "starcoder", "llama2", "phi3", "gemma", "spm_trained"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace godwit
