// Malformed and hostile tokenizers end in one clear error, hostile texts in bounded time.
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace godwit {
namespace {

using Json = nlohmann::json;

Json golden_json(const std::string& kind) {
  std::ifstream file(std::string(GODWIT_TEST_DATA) + "/tokenizers/" + kind + ".json");
  EXPECT_TRUE(file.good()) << kind;
  return Json::parse(file);
}

Json tiny() {
  return Json::parse(R"({"added_tokens": [{"id": 3, "content": "<x>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

// The error names the source and mentions `what`.
void expect_refused(const Json& json, std::string_view what) {
  const auto result = Tokenizer::from_json(json.dump(), "", "bad.json");
  ASSERT_FALSE(result) << what;
  EXPECT_TRUE(result.error().message.starts_with("bad.json")) << result.error().message;
  EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
}

template <class Change>
Json changed(Change&& change) {
  Json json = tiny();
  change(json);
  return json;
}

TEST(TokenizerHostile, TheTinyOneIsFine) {
  const auto tokenizer = Tokenizer::from_json(tiny().dump(), "", "tiny.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("abba", {}), (std::vector<TokenId>{2, 1, 0}));
  EXPECT_EQ(*tokenizer->encode("<x>ab", {.parse_special = true}), (std::vector<TokenId>{3, 2}));
}

TEST(TokenizerHostile, RefusesBrokenVocabularies) {
  expect_refused(changed([](Json& j) { j["model"]["vocab"]["b"] = 0; }), "share the id 0");
  expect_refused(changed([](Json& j) { j["model"]["vocab"]["b"] = -1; }), "id -1");
  expect_refused(changed([](Json& j) { j["model"]["vocab"]["b"] = 1.5; }), "not a whole number");
  expect_refused(changed([](Json& j) { j["model"]["vocab"]["b"] = 4'000'000'000; }), "4000000000");
  expect_refused(changed([](Json& j) { j["model"]["vocab"]["b"] = 9'000'000; }), "contiguous");
  expect_refused(changed([](Json& j) { j["added_tokens"][0]["id"] = 1; }), "share the id 1");
  expect_refused(changed([](Json& j) { j["added_tokens"][0]["content"] = "a"; }), "two ids");
  expect_refused(changed([](Json& j) { j["model"]["merges"] = {"a c"}; }), "not in the vocabulary");
  expect_refused(changed([](Json& j) { j["model"]["merges"] = {"b a"}; }), "not in the vocabulary");
  expect_refused(changed([](Json& j) { j["model"]["merges"] = {"ab"}; }), "not a pair");
  expect_refused(changed([](Json& j) { j["model"]["merges"] = {"a b c"}; }), "not a pair");
  expect_refused(changed([](Json& j) { j["model"]["merges"] = 7; }), "not a list");
  expect_refused(changed([](Json& j) { j["model"]["unk_token"] = "<unk>"; }), "unknown token");
  expect_refused(changed([](Json& j) { j["model"]["type"] = "WordPiece"; }), "WordPiece");
  expect_refused(changed([](Json& j) { j.erase("model"); }), "model");
  expect_refused(Json(3), "object");
}

TEST(TokenizerHostile, AcceptsHoles) {
  const auto tokenizer =
      Tokenizer::from_json(changed([](Json& j) { j["added_tokens"][0]["id"] = 50; }).dump(), "", "holes.json");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), 51);
  EXPECT_EQ(tokenizer->piece(20), "");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{0, 20, -5, 99999, 1}), "ab");
}

TEST(TokenizerHostile, NamesWhatIsNotSupported) {
  const auto step = [](const char* part, const char* type) {
    return changed([&](Json& j) { j[part] = {{"type", type}}; });
  };
  expect_refused(step("normalizer", "Precompiled"), "Precompiled");
  expect_refused(step("pre_tokenizer", "UnicodeScripts"), "UnicodeScripts");
  expect_refused(step("decoder", "CTC"), "CTC");
  expect_refused(step("post_processor", "Magic"), "Magic");
  const auto split = [](const char* regex) {
    return changed([&](Json& j) {
      j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
    });
  };
  expect_refused(split("[a&&b]"), "intersection");
  expect_refused(split("[a[^b]]"), "class inside a class");
  expect_refused(split("(a"), "not a valid regular expression");
  expect_refused(split("a\\"), "backslash");
}

TEST(TokenizerHostile, BoundsPatternsThatBacktrackForever) {
  for (const char* regex : {"(a+)+$", "(a|aa)+$", "(?:a*)*b", "(?=(a+))a*b\\1"}) {
    const Json json = changed([&](Json& j) {
      j["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
    });
    const auto tokenizer = Tokenizer::from_json(json.dump(), "", "slow.json");
    if (!tokenizer) continue;
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer->encode(std::string(20000, 'a') + "!");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << regex;
    if (!ids) {
      EXPECT_NE(ids.error().message.find(regex), std::string::npos) << ids.error().message;
    }
  }
}

TEST(TokenizerHostile, LongRunsTakeLinearTime) {
  const std::string runs[] = {std::string(1 << 18, 'a'), std::string(1 << 18, ' ') + "x",
                              std::string(1 << 18, '\n') + "x", std::string(1 << 18, '7'), std::string(1 << 18, '!')};
  for (const char* kind : {"gpt2", "llama3", "qwen2", "deepseek3", "deepseek_coder", "tekken", "gpt4o", "falcon",
                           "llama2", "spm_trained", "unigram_bytes"}) {
    const auto tokenizer = Tokenizer::from_json(golden_json(kind).dump(), "", kind);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const std::string& run : runs) {
      const auto ids = tokenizer->encode(run, {.add_bos = false, .add_eos = false});
      ASSERT_TRUE(ids) << kind << ": " << ids.error().message;
      EXPECT_EQ(tokenizer->decode(*ids).size(),
                kind == std::string("unigram_bytes") && run[0] == ' ' ? run.size() - 1 : run.size());
    }
  }
}

TEST(TokenizerHostile, BoundsGrowthInTheNormalizer) {
  const Json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(500, 'a')}};
  const Json json = changed([&](Json& j) {
    j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step, step, step, step}}};
  });
  const auto tokenizer = Tokenizer::from_json(json.dump(), "", "big.json");
  ASSERT_TRUE(tokenizer);
  const auto ids = tokenizer->encode("aaaa");
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::kExhausted);
}

GgufVocab tiny_gguf() {
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "a", "b", "ab"};
  vocab.scores = {0, 0, -3, -3, -1};
  vocab.types = {2, 3, 1, 1, 1};
  vocab.bos = 1;
  vocab.add_space_prefix = false;
  return vocab;
}

void expect_gguf_refused(GgufVocab vocab, std::string_view what) {
  const auto result = Tokenizer::from_gguf(std::move(vocab), "bad.gguf");
  ASSERT_FALSE(result) << what;
  EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
}

TEST(TokenizerHostile, RefusesBrokenGguf) {
  const auto good = Tokenizer::from_gguf(tiny_gguf(), "good.gguf");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(*good->encode("ab"), (std::vector<TokenId>{1, 4}));
  const auto with = [](auto&& change) {
    GgufVocab vocab = tiny_gguf();
    change(vocab);
    return vocab;
  };
  expect_gguf_refused(with([](auto& v) { v.model = "rwkv"; }), "rwkv");
  expect_gguf_refused(with([](auto& v) { v.tokens.clear(); }), "empty");
  expect_gguf_refused(with([](auto& v) { v.scores.pop_back(); }), "4 entries for 5 tokens");
  expect_gguf_refused(with([](auto& v) { v.scores.clear(); }), "scores is missing");
  expect_gguf_refused(with([](auto& v) { v.scores[0] = NAN; }), "not a number");
  expect_gguf_refused(with([](auto& v) { v.types.push_back(1); }), "6 entries");
  expect_gguf_refused(with([](auto& v) { v.bos = 5; }), "id 5");
  expect_gguf_refused(with([](auto& v) { v.eos = -7; }), "id -7");
  expect_gguf_refused(with([](auto& v) { v.tokens[3] = "a"; }), "two ids");
  expect_gguf_refused(with([](auto& v) { v.merges = {"a x"}; }), "not in the vocabulary");
  expect_gguf_refused(with([](auto& v) { v.space_prefix = "sometimes", v.add_space_prefix = true; }), "sometimes");
  expect_gguf_refused(with([](auto& v) { v.model = "gpt2", v.pre = "no-such-pre"; }), "no-such-pre");
  expect_gguf_refused(with([](auto& v) { v.model = "gpt2", v.pre = "gpt-2"; }), "merges is missing");
  expect_gguf_refused(with([](auto& v) { v.model = "t5", v.precompiled_charsmap = {1}; }), "precompiled_charsmap");
}

TEST(TokenizerHostile, ConfigFlagsDecideAboutBosAndEos) {
  const std::string llama = golden_json("llama2").dump();
  const auto encode = [&](const char* config) { return *Tokenizer::from_json(llama, config, "llama2")->encode("a"); };
  const auto plain = encode("");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0], 1);
  EXPECT_EQ(encode(R"({"bos_token": "<s>", "add_bos_token": false})").size(), 1u);
  EXPECT_EQ(encode(R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_eos_token": true})"),
            (std::vector<TokenId>{1, plain[1], 2}));
}

}  // namespace
}  // namespace godwit
