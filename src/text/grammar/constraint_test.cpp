// Masks over tokens: equal to trying every token, never a dead end, and what comes out is JSON.
#include "text/grammar/constraint.h"

#include <random>

#include <fmt/format.h>

#include "text/grammar/test_grammars.h"

namespace godwit {
namespace {

using grammar_test::grammar_of;
using grammar_test::value_of;

constexpr const char* kTokenizers[] = {"gpt2", "llama3", "qwen2", "tekken", "llama2", "gemma", "deepseek3"};

constexpr const char* kSchemas[] = {
    R"({})",
    R"({"type":"object"})",
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
        "tags":{"type":"array","items":{"enum":["red","green","reddish"]},"maxItems":3}},"required":["name","age"],
        "additionalProperties":false})",
    R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"number"},"kids":{"type":"array",
        "items":{"$ref":"#/$defs/t"}}},"required":["v"]}}})",
    R"({"anyOf":[{"type":"object","properties":{"k":{"const":"a"},"s":{"type":"string"}},"required":["k","s"]},
        {"type":"object","properties":{"k":{"const":"ab"},"s":{"type":"string","maxLength":5}},"required":["k","s"]}]})",
    R"({"type":"string","maxLength":130})",
    R"({"type":"string","pattern":"^[a-z]+(, [a-z]+)*$"})",
    R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"boolean"}})",
};

std::shared_ptr<const TokenTrie> trie_of(const Tokenizer& tokenizer) {
  // A model's vocabulary may be larger than its tokenizer's.
  return std::make_shared<TokenTrie>(value_of(TokenTrie::make(tokenizer, tokenizer.vocab_size() + 3, {})));
}

bool has(const TokenMask& mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

std::vector<TokenId> tokens_of(const TokenMask& mask) {
  std::vector<TokenId> tokens;
  for (TokenId id = 0; id < static_cast<TokenId>(mask.size() * 64); ++id)
    if (has(mask, id)) tokens.push_back(id);
  return tokens;
}

TokenMask by_trying(const ConstraintState& state, int vocab_size) {
  TokenMask mask((static_cast<size_t>(vocab_size) + 63) / 64);
  for (TokenId id = 0; id < vocab_size; ++id) {
    ConstraintState copy = state;
    if (value_of(copy.advance(id))) mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  return mask;
}

class Constraints : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Constraints, testing::ValuesIn(kTokenizers));

TEST_P(Constraints, MasksEqualTryingEveryToken) {
  const auto trie = trie_of(grammar_test::tokenizer(GetParam()));
  std::mt19937 random(7);
  TokenMask mask;
  for (const char* schema : kSchemas) {
    const auto constraint = std::make_shared<Constraint>(grammar_of(schema), trie);
    for (int round = 0; round < 4; ++round) {
      ConstraintState state = value_of(ConstraintState::start(constraint));
      std::string text;
      for (int i = 0; i < 60 && !state.must_end(); ++i) {
        ASSERT_TRUE(state.allowed(mask).has_value());
        ASSERT_EQ(mask, by_trying(state, trie->vocab_size())) << schema << "\n" << text;
        const std::vector<TokenId> tokens = tokens_of(mask);
        ASSERT_FALSE(tokens.empty()) << schema << "\n" << text;
        const TokenId chosen = tokens[random() % tokens.size()];
        text += trie->bytes(chosen);
        ASSERT_TRUE(value_of(state.advance(chosen)));
      }
    }
  }
}

TEST_P(Constraints, MasksNearTheLimitOfNestingEqualTryingEveryToken) {
  const auto trie = trie_of(grammar_test::tokenizer(GetParam()));
  const auto constraint = std::make_shared<Constraint>(grammar_of("{}"), trie);
  TokenMask mask;
  for (const std::string_view open : {"[", "{\"a\":"}) {
    ConstraintState state = value_of(ConstraintState::start(constraint));
    int depth = 0;
    for (;; ++depth) {
      ASSERT_TRUE(state.allowed(mask).has_value());
      ASSERT_EQ(mask, by_trying(state, trie->vocab_size())) << depth << " times " << open;
      ConstraintState deeper = state;
      if (!value_of(deeper.advance(open))) break;
      state = deeper;
    }
    EXPECT_GE(depth, 30);
  }
}

TEST_P(Constraints, RandomAnswersAreJsonAndShortOnesEnd) {
  const auto trie = trie_of(grammar_test::tokenizer(GetParam()));
  std::mt19937 random(8);
  TokenMask mask;
  int ended = 0;
  for (const char* schema : kSchemas) {
    const auto constraint = std::make_shared<Constraint>(grammar_of(schema), trie);
    for (int round = 0; round < 40; ++round) {
      ConstraintState state = value_of(ConstraintState::start(constraint));
      std::string text;
      for (int i = 0; i < 400 && !state.must_end() && !(state.may_end() && random() % 2 == 0); ++i) {
        ASSERT_TRUE(state.allowed(mask).has_value());
        std::vector<TokenId> tokens = tokens_of(mask);
        ASSERT_FALSE(tokens.empty()) << text;
        // Closing tokens more often than chance would have them.
        std::vector<TokenId> closing;
        for (const TokenId token : tokens)
          if (trie->bytes(token).find_first_of("\"}]") != std::string::npos) closing.push_back(token);
        const auto& from = closing.empty() || random() % 3 == 0 ? tokens : closing;
        const TokenId chosen = from[random() % from.size()];
        text += trie->bytes(chosen);
        ASSERT_TRUE(value_of(state.advance(chosen)));
      }
      if (!state.may_end()) continue;
      ++ended;
      EXPECT_TRUE(nlohmann::json::accept(text)) << schema << "\n" << text;
    }
  }
  EXPECT_GT(ended, 100);
}

TEST_P(Constraints, EveryTokenPrefixOfADocumentIsAccepted) {
  const Tokenizer tokenizer = grammar_test::tokenizer(GetParam());
  const auto constraint = std::make_shared<Constraint>(grammar_of("{}"), trie_of(tokenizer));
  const std::string documents[] = {
      R"({"name": "Ünïcödé \"quoted\" \\ \u00e9 😀", "list": [1, -2.5, 3e10, true, false, null], "empty": {}, "e": []})",
      "{\n  \"a\": [\n    {\n      \"b\": \"c\"\n    },\n    [\n      [\n        1\n      ]\n    ]\n  ]\n}",
      R"([[[[]]],"","a",[{"k":{"k":{"k":0}}}]])",
  };
  TokenMask mask;
  int whole = 0;
  for (const std::string& text : documents) {
    ConstraintState state = value_of(ConstraintState::start(constraint));
    const auto tokens = value_of(tokenizer.encode(text, {.add_bos = false, .add_eos = false, .continues = true}));
    if (tokenizer.decode(tokens) != text) continue;  // a vocabulary without these characters
    for (const TokenId token : tokens) {
      ASSERT_TRUE(state.allowed(mask).has_value());
      ASSERT_TRUE(has(mask, token)) << text << " at " << tokenizer.token_text(token);
      ASSERT_TRUE(value_of(state.advance(token)));
    }
    EXPECT_TRUE(state.may_end() && state.must_end());
    ++whole;
  }
  EXPECT_GE(whole, 2);
}

TEST(Constraint, AmbiguityWithoutEndIsAnError) {
  // Two readings per level, which differ only far behind.
  const char* schema = R"({"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[
      {"type":"object","properties":{"c":{"$ref":"#/$defs/n"},"x":{"type":"null"}},"required":["c","x"]},
      {"type":"object","properties":{"c":{"$ref":"#/$defs/n"},"y":{"type":"null"}},"required":["c","y"]},
      {"type":"null"}]}}})";
  const auto trie = trie_of(grammar_test::tokenizer("gpt2"));
  ConstraintState state = value_of(ConstraintState::start(std::make_shared<Constraint>(grammar_of(schema), trie)));
  Result<bool> status = true;
  for (int i = 0; i < 30 && status; ++i) status = state.advance(R"({"c":)");
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("ambiguous"), std::string::npos);
}

TEST(Constraint, SpecialTokensAndEndTokensAreNoText) {
  const Tokenizer tokenizer = grammar_test::tokenizer("qwen2");
  const TokenId special = *tokenizer.find("<|im_start|>"), end = *tokenizer.find("<|im_end|>");
  ASSERT_TRUE(tokenizer.is_special(special));
  const auto trie =
      std::make_shared<TokenTrie>(value_of(TokenTrie::make(tokenizer, tokenizer.vocab_size(), std::vector{end})));
  EXPECT_EQ(trie->bytes(special), "\xFF<|im_start|>");
  EXPECT_EQ(trie->bytes(end), "");
  ConstraintState state = value_of(ConstraintState::start(std::make_shared<Constraint>(grammar_of("{}"), trie)));
  ASSERT_TRUE(value_of(state.advance("\"")));
  TokenMask mask;
  ASSERT_TRUE(state.allowed(mask).has_value());
  EXPECT_FALSE(has(mask, special));
  EXPECT_FALSE(has(mask, end));
  EXPECT_GT(tokens_of(mask).size(), 100U);
}

}  // namespace
}  // namespace godwit
